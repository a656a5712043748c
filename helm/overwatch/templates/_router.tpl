{{- /* The router's configuration, in the OpenTelemetry Collector's own form. */ -}}
{{- define "overwatch.routerConfig" -}}
{{- toYaml (mergeOverwrite (include "overwatch.routerOwn" . | fromYaml) (deepCopy .Values.router.config)) -}}
{{- end -}}

{{- define "overwatch.routerOwn" -}}
{{- $tls := .Values.tls.enabled -}}
extensions:
  health_check:
    endpoint: {{ print .Values.network.listen ":13133" | quote }}
  bearertokenauth:
    filename: /etc/overwatch/tokens/ingest{{ .Values.security.acceptedSuffix }}
receivers:
  otlp:
    protocols:
      {{- range $protocol, $port := dict "grpc" 4317 "http" 4318 }}
      {{ $protocol }}:
        endpoint: {{ printf "%s:%d" $.Values.network.listen $port | quote }}
        auth: {authenticator: bearertokenauth}
        {{- if $tls }}
        tls: {cert_file: /etc/overwatch/tls/tls.crt, key_file: /etc/overwatch/tls/tls.key, reload_interval: 1m}
        {{- end }}
      {{- end }}
processors:
  memory_limiter:
    check_interval: 1s
    limit_percentage: 80
    spike_limit_percentage: 25
exporters:
  load_balancing:
    # All of a run goes to one collector: it is the only writer of that run's state.
    routing_key: attributes
    routing_attributes: [rl.run.id]
    protocol:
      otlp:
        auth: {authenticator: bearertokenauth}
        # No queue: it would be in memory. The answer is the collector's, and the sender tries again.
        sending_queue: {enabled: false}
        retry_on_failure: {enabled: false}
        tls:
          {{- if $tls }}
          ca_file: /etc/overwatch/tls/ca.crt
          server_name_override: {{ include "overwatch.fullname" . }}
          {{- else }}
          insecure: true
          {{- end }}
    resolver:
      dns:
        hostname: {{ include "overwatch.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.network.clusterDomain }}
        port: 4317
service:
  extensions: [health_check, bearertokenauth]
  pipelines:
    {{- range $signal := list "logs" "metrics" "traces" }}
    {{ $signal }}:
      receivers: [otlp]
      processors: [memory_limiter]
      exporters: [load_balancing]
    {{- end }}
{{- end -}}
