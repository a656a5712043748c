{{- define "overwatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "overwatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "overwatch.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "overwatch.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "overwatch.labels" -}}
{{ include "overwatch.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "overwatch.selectorLabels" -}}
app.kubernetes.io/name: {{ include "overwatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "overwatch.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "overwatch.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "overwatch.tokenSecret" -}}
{{- default (printf "%s-tokens" (include "overwatch.fullname" .)) .Values.security.existingTokenSecret -}}
{{- end -}}

{{- define "overwatch.tlsSecret" -}}
{{- default (printf "%s-tls" (include "overwatch.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{- define "overwatch.headless" -}}
{{- printf "%s-pods" (include "overwatch.fullname" .) -}}
{{- end -}}

{{- /* Where snapshots and metrics are, of pods that are not ready too. */ -}}
{{- define "overwatch.view" -}}
{{- printf "%s-view" (include "overwatch.fullname" .) -}}
{{- end -}}

{{- /* Refuses secrets where Helm cannot see which ones there are: each render would make others.

What is looked up is in each namespace, or can be read by those who may make one. */ -}}
{{- define "overwatch.mustSeeCluster" -}}
{{- if not (or (lookup "v1" "ConfigMap" .root.Release.Namespace "kube-root-ca.crt") (lookup "v1" "Namespace" "" "kube-system")) -}}
{{- fail (printf "%s: Helm sees no cluster here (helm template, a dry run, Argo CD), so each render would make other %s; make a secret with the keys %s yourself and name it in %s" .value .what .keys .value) -}}
{{- end -}}
{{- end -}}

{{- define "overwatch.scheme" -}}
{{- ternary "https" "http" .Values.tls.enabled -}}
{{- end -}}

{{- /* Where trainers send: the router where there is one. */ -}}
{{- define "overwatch.ingest" -}}
{{- ternary (printf "%s-router" (include "overwatch.fullname" .)) (include "overwatch.fullname" .) .Values.router.enabled -}}
{{- end -}}

{{- /* An image of (dict "image" ... "tag" default). */ -}}
{{- define "overwatch.image" -}}
{{- $tag := default .tag .image.tag -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else if eq $tag "latest" -}}
{{- fail (printf "image %s: the tag latest means another image each day; name a version or a digest" .image.repository) -}}
{{- else -}}
{{- printf "%s:%s" .image.repository $tag -}}
{{- end -}}
{{- end -}}

{{- define "overwatch.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.podSecurity.runAsUser }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
{{- end }}
{{- with .Values.podSecurity.fsGroup }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "overwatch.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "overwatch.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The collector's own configuration, as YAML. */ -}}
{{- define "overwatch.config" -}}
{{- $name := include "overwatch.fullname" . -}}
{{- $hosts := list -}}
{{- range $host := list $name (include "overwatch.view" .) (include "overwatch.headless" .) (include "overwatch.ingest" .) -}}
{{- $hosts = concat $hosts (list $host (printf "%s.%s" $host $.Release.Namespace) (printf "%s.%s.svc" $host $.Release.Namespace) (printf "%s.%s.svc.%s" $host $.Release.Namespace $.Values.network.clusterDomain)) -}}
{{- end -}}
{{- $hosts = concat $hosts (list (printf "*.%s.%s.svc.%s" (include "overwatch.headless" .) .Release.Namespace .Values.network.clusterDomain)) .Values.security.allowedHosts -}}
{{- range $outside := list .Values.ingress .Values.httpRoute -}}
{{- if $outside.enabled -}}
{{- $hosts = concat $hosts (compact (list $outside.viewHost $outside.ingestHost)) -}}
{{- end -}}
{{- end -}}
{{- $hosts = uniq $hosts -}}
{{- $listen := .Values.network.listen -}}
{{- $security := dict "allow_insecure_bind" (not .Values.tls.enabled) "allowed_hosts" $hosts
      "tokens" (dict
        "ingest" (dict "filename" (print "/etc/overwatch/tokens/ingest" .Values.security.acceptedSuffix))
        "read" (dict "filename" (print "/etc/overwatch/tokens/read" .Values.security.acceptedSuffix))
        "control" (dict "filename" (print "/etc/overwatch/tokens/control" .Values.security.acceptedSuffix))) -}}
{{- if .Values.tls.enabled -}}
{{- $files := dict "cert_file" "/etc/overwatch/tls/tls.crt" "key_file" "/etc/overwatch/tls/tls.key" -}}
{{- with .Values.tls.clientCaKey -}}
{{- $_ := set $files "client_ca_file" (printf "/etc/overwatch/tls/%s" .) -}}
{{- end -}}
{{- $_ := set $security "tls" $files -}}
{{- end -}}
{{- $config := dict
      "receivers" (dict "otlp" (dict "protocols" (dict "grpc" (dict "endpoint" (print $listen ":4317")) "http" (dict "endpoint" (print $listen ":4318")))))
      "exporters" (dict "prometheus" (dict "endpoint" (print $listen ":8889")))
      "extensions" (dict "health_check" (dict "endpoint" (print $listen ":13133")) "view" (dict "endpoint" (print $listen ":4380")))
      "service" (dict
        "telemetry" (dict "metrics" (dict "address" (print $listen ":8888")) "logs" (dict "encoding" "json"))
        "security" $security) -}}
{{- if .Values.tls.enabled -}}
{{- $_ := set $config.extensions.health_check "tls" (dict "cert_file" "/etc/overwatch/tls/tls.crt" "key_file" "/etc/overwatch/tls/tls.key") -}}
{{- end -}}
{{- if not .Values.collector.snapshots -}}
{{- /* Pipelines that are named replace the collector's own, so all of them are. */ -}}
{{- $telemetry := dict "receivers" (list "otlp") "exporters" (list "aggregator" "otlp_file") -}}
{{- $snapshots := dict "receivers" (list "aggregator") "exporters" (list "prometheus") -}}
{{- $_ := set $config.service "pipelines" (dict "logs" $telemetry "metrics" $telemetry "traces" $telemetry "snapshots" $snapshots) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end -}}

{{- /* Environment of something that sends to the collector. */ -}}
{{- define "overwatch.senderEnv" -}}
- name: OVERWATCH_INGEST_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "overwatch.tokenSecret" . }}
      key: ingest
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ printf "%s://%s:4318" (include "overwatch.scheme" .) (include "overwatch.ingest" .) }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  value: authorization=Bearer%20$(OVERWATCH_INGEST_TOKEN)
{{- if .Values.tls.enabled }}
- name: OTEL_EXPORTER_OTLP_CERTIFICATE
  value: /etc/overwatch/tls/ca.crt
{{- end }}
- name: K8S_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: K8S_POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: K8S_NAMESPACE_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: K8S_NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end -}}

{{- /* What a host of an Ingress or of a Gateway leads to, as JSON: (dict "root" . "outside" .Values.ingress). */ -}}
{{- define "overwatch.outside" -}}
{{- $found := list -}}
{{- with .outside.viewHost -}}
{{- $found = append $found (dict "name" "view" "host" . "service" (include "overwatch.view" $.root) "port" 4380) -}}
{{- end -}}
{{- with .outside.ingestHost -}}
{{- $found = append $found (dict "name" "ingest" "host" . "service" (include "overwatch.ingest" $.root) "port" 4318) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* Combinations that cannot work. */ -}}
{{- define "overwatch.check" -}}
{{- range $kind, $outside := dict "ingress" .Values.ingress "httpRoute" .Values.httpRoute -}}
{{- if and $outside.enabled (not $outside.viewHost) (not $outside.ingestHost) -}}
{{- fail (printf "%s.enabled names no host; set %s.viewHost, %s.ingestHost or both" $kind $kind $kind) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.enabled needs httpRoute.parentRefs: a route belongs to a Gateway, e.g. [{name: public, namespace: gateways}]" -}}
{{- end -}}
{{- if .Values.autoscaling.enabled -}}
{{- fail "autoscaling.enabled: a collector is the only writer of its runs and owns their state and volume; scaled by load, one run would be split over pods and judged wrong. Set replicas with router.enabled instead" -}}
{{- end -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.router.enabled) -}}
{{- fail (printf "replicas: %d without router.enabled: the service would split a run's requests over pods; set router.enabled=true, which keeps each run at one collector" (int .Values.replicas)) -}}
{{- end -}}
{{- if and (not .Values.tls.enabled) (not .Values.security.plaintextInCluster) -}}
{{- fail "neither tls.enabled nor security.plaintextInCluster: choose how telemetry travels inside of the cluster" -}}
{{- end -}}
{{- if and .Values.agent.enabled (not .Values.agent.runId) -}}
{{- fail "agent.enabled needs agent.runId: GPU and host numbers belong to a run" -}}
{{- end -}}
{{- end -}}
