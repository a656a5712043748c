{{- /* The learner stack. One table of parts and one of links: workloads, policies and checks read them. */ -}}

{{- /* Name of a part: (dict "root" . "part" "replay"). A StatefulSet's name has to stay below 53 characters. */ -}}
{{- define "overwatch.stack.name" -}}
{{- printf "%s-%s" (include "overwatch.fullname" .root | trunc 38 | trimSuffix "-") .part -}}
{{- end -}}

{{- define "overwatch.stack.tokenSecret" -}}
{{- default (include "overwatch.stack.name" (dict "root" . "part" "stack-tokens")) .Values.stack.existingTokenSecret -}}
{{- end -}}

{{- /* Parts that are switched on, by commas. */ -}}
{{- define "overwatch.stack.parts" -}}
{{- $parts := list -}}
{{- if .Values.stack.enabled -}}
{{- range $part := list "orchestrator" "replay" "learner" "actors" "rollouts" "trainer" -}}
{{- if (index $.Values.stack $part).enabled -}}
{{- $parts = append $parts $part -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $parts | join "," -}}
{{- end -}}

{{- /* Parts that are called, and so have a certificate, as JSON. */ -}}
{{- define "overwatch.stack.servers" -}}
{{- $servers := list -}}
{{- range $part := include "overwatch.stack.parts" . | splitList "," -}}
{{- if has $part (list "orchestrator" "replay" "rollouts" "learner") -}}
{{- $servers = append $servers $part -}}
{{- end -}}
{{- end -}}
{{- toJson $servers -}}
{{- end -}}

{{- /* Which part connects to which inside of the stack, as JSON: port 0 stands for all. */ -}}
{{- define "overwatch.stack.links" -}}
{{- list
      (dict "from" "learner" "to" "replay" "port" 8100)
      (dict "from" "actors" "to" "replay" "port" 8100)
      (dict "from" "actors" "to" "learner" "port" 8300)
      (dict "from" "learner" "to" "orchestrator" "port" 8200)
      (dict "from" "actors" "to" "orchestrator" "port" 8200)
      (dict "from" "trainer" "to" "trainer" "port" 0)
    | toJson -}}
{{- end -}}

{{- define "overwatch.stack.selectorLabels" -}}
{{ include "overwatch.selectorLabels" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "overwatch.stack.labels" -}}
{{ include "overwatch.labels" .root }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- /* Labels of a workload that Kueue admits. */ -}}
{{- define "overwatch.stack.queue" -}}
{{- with .Values.stack.queue }}
kueue.x-k8s.io/queue-name: {{ . }}
{{- end }}
{{- end -}}

{{- define "overwatch.stack.image" -}}
{{- include "overwatch.image" (dict "image" .Values.stack.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- /* Full name of a service's host: (dict "root" . "host" ...). */ -}}
{{- define "overwatch.stack.host" -}}
{{- printf "%s.%s.svc.%s" .host .root.Release.Namespace .root.Values.network.clusterDomain -}}
{{- end -}}

{{- /* Addresses of the replay servers, in the order that all clients use, as JSON. */ -}}
{{- define "overwatch.stack.replays" -}}
{{- $name := include "overwatch.stack.name" (dict "root" . "part" "replay") -}}
{{- $found := list -}}
{{- range $shard := until (int .Values.stack.replay.shards) -}}
{{- $host := include "overwatch.stack.host" (dict "root" $ "host" (printf "%s-%d.%s" $name $shard $name)) -}}
{{- $found = append $found (printf "%s://%s:8100" (ternary "grpcs" "grpc" $.Values.tls.enabled) $host) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* Arguments that a server and its clients share, as YAML: where a server listens, its token and certificate. */ -}}
{{- define "overwatch.stack.serve" -}}
- --listen
- {{ printf "%s:%d" .root.Values.network.listen (int .port) | quote }}
{{- if .root.Values.tls.enabled }}
- --tls-cert
- /etc/overwatch/tls/tls.crt
- --tls-key
- /etc/overwatch/tls/tls.key
{{- end }}
- --run-id
- {{ .root.Values.stack.runId | quote }}
{{- end -}}

{{- /* What a learner and an actor are both given. */ -}}
{{- define "overwatch.stack.client" -}}
- --run-id
- {{ .Values.stack.runId | quote }}
- --config
- /etc/overwatch/run/run.yaml
{{- range include "overwatch.stack.replays" . | fromJsonArray }}
- --replay
- {{ . }}
{{- end }}
- --replay-token
- /etc/overwatch/stack/replay
{{- if .Values.tls.enabled }}
- --replay-ca
- /etc/overwatch/tls/ca.crt
{{- end }}
{{- if .Values.stack.orchestrator.enabled }}
- --orchestrator
- {{ include "overwatch.scheme" . }}://{{ include "overwatch.stack.host" (dict "root" . "host" (include "overwatch.stack.name" (dict "root" . "part" "orchestrator"))) }}:8200
{{- if .Values.tls.enabled }}
- --orchestrator-ca
- /etc/overwatch/tls/ca.crt
{{- end }}
{{- end }}
- --log
- json
{{ include "overwatch.stack.alive" . }}
{{- end -}}

{{- /* Where each process shows that it goes on. */ -}}
{{- define "overwatch.stack.alive" -}}
- --alive
- /tmp/alive
{{- end -}}

{{- /* Arguments of torchrun that begin the training, wherever torchrun has its group from. */ -}}
{{- define "overwatch.stack.train" -}}
- -m
- overwatch_rl.cli
- --
- train
- --run-id
- {{ .Values.stack.runId | quote }}
- --out
- /var/lib/overwatch
- --resume
- --log
- json
{{ include "overwatch.stack.alive" . }}
{{- with .Values.stack.trainer.args }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "overwatch.stack.trainerData" -}}
{{- if not .Values.persistence.enabled -}}
emptyDir: {sizeLimit: {{ .Values.stack.trainer.size }}}
{{- else -}}
persistentVolumeClaim:
  claimName: {{ default (include "overwatch.stack.name" (dict "root" . "part" "trainer")) .Values.stack.trainer.volumeClaim }}
{{- end -}}
{{- end -}}

{{- /* Environment of every part: telemetry goes to the release's collector. The root, or (dict "root" . "data" true)
of a part with a claim of its own, on which what was not delivered yet outlives the pod. */ -}}
{{- define "overwatch.stack.env" -}}
{{ include "overwatch.senderEnv" (default . .root) }}
- {name: XDG_RUNTIME_DIR, value: /tmp/run}
- {name: OVERWATCH_SPOOL_DIR, value: {{ ternary "/var/lib/overwatch/spool" "/tmp/spool" (default false .data) }}}
- {name: HOME, value: /tmp}
{{- end -}}

{{- /* Number of a pod in its StatefulSet. */ -}}
{{- define "overwatch.stack.index" -}}
- name: POD_INDEX
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
{{- end -}}

{{- /* Mounts: (dict "root" . "data" bool "config" bool "tokens" bool). */ -}}
{{- define "overwatch.stack.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: shm, mountPath: /dev/shm}
{{- if .data }}
- {name: data, mountPath: /var/lib/overwatch}
{{- end }}
{{- if .config }}
- {name: run, mountPath: /etc/overwatch/run, readOnly: true}
{{- end }}
{{- if .tokens }}
- {name: tokens, mountPath: /etc/overwatch/stack, readOnly: true}
{{- end }}
{{- if .root.Values.tls.enabled }}
- {name: tls, mountPath: /etc/overwatch/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- /* Volumes: as the mounts; `tokens` are keys, `shm` a size, `serves` whether it has the certificate's key,
`volume` the data where no claim template makes it. */ -}}
{{- define "overwatch.stack.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 2Gi}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ default "64Mi" .shm }}}
{{- with .volume }}
- name: data
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .config }}
- name: run
  configMap:
    name: {{ include "overwatch.stack.name" (dict "root" .root "part" "stack") }}
    items: [{key: run.yaml, path: run.yaml}]
{{- end }}
{{- if .tokens }}
- name: tokens
  secret:
    secretName: {{ include "overwatch.stack.tokenSecret" .root }}
    defaultMode: 0440
    items:
      {{- range .tokens }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "overwatch.tlsSecret" .root }}
    defaultMode: 0440
    {{- if not .serves }}
    items: [{key: ca.crt, path: ca.crt}]
    {{- end }}
{{- end }}
{{- end -}}

{{- /* How a pod of the stack begins: (dict "root" . "values" .Values.stack.replay). */ -}}
{{- define "overwatch.stack.podHead" -}}
serviceAccountName: {{ include "overwatch.serviceAccountName" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- include "overwatch.pullSecrets" .root }}
securityContext:
  {{- include "overwatch.podSecurity" .root | nindent 2 }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Image, limits and security of a container. */ -}}
{{- define "overwatch.stack.container" -}}
image: {{ include "overwatch.stack.image" .root }}
imagePullPolicy: {{ .root.Values.stack.image.pullPolicy }}
workingDir: /tmp
securityContext:
  {{- include "overwatch.containerSecurity" .root | nindent 2 }}
resources:
  {{- toYaml .values.resources | nindent 2 }}
{{- end -}}

{{- /* Claim template of a StatefulSet: (dict "root" . "size" "20Gi"). */ -}}
{{- define "overwatch.stack.claim" -}}
accessModes: [{{ default "ReadWriteOnce" .mode }}]
{{- with .root.Values.persistence.storageClass }}
storageClassName: {{ ternary "" . (eq . "-") | quote }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end -}}

{{- /* Probes of an HTTP server; a log that cannot be written makes it not ready, and no restart would mend that. */ -}}
{{- define "overwatch.stack.httpProbes" -}}
startupProbe:
  tcpSocket: {port: http}
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ upper (include "overwatch.scheme" .) }}}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  tcpSocket: {port: http}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{- /* Probes of what connects out only, and so has no readiness: (dict "root" . "processes" 1). The status is 0 where
each process has a file and all are young. What hangs is ended soon: ended in order, a Job would count as complete. */ -}}
{{- define "overwatch.stack.aliveProbes" -}}
{{- $stack := .root.Values.stack }}
{{- $command := list "find" }}
{{- range until (int .processes) }}
{{- $command = append $command (printf "/tmp/alive/%d" .) }}
{{- end }}
{{- $command = concat $command (list "!" "-newermt" (printf "-%dseconds" (int $stack.livenessSeconds)) "-exec" "false" "{}" "+") }}
startupProbe:
  exec: {command: {{ toJson $command }}}
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: {{ max 1 (div (int $stack.startSeconds) 5) }}
  terminationGracePeriodSeconds: 5
livenessProbe:
  exec: {command: {{ toJson $command }}}
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: 3
  terminationGracePeriodSeconds: 5
{{- end -}}

{{- /* A StatefulSet's head up to its pods: (dict "root" . "part" "replay" "values" ... "replicas" 1 "claims" bool). */ -}}
{{- define "overwatch.stack.set" -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ include "overwatch.stack.name" . }}
  labels:
    {{- include "overwatch.stack.labels" . | nindent 4 }}
    {{- if eq .part "actors" }}
    {{- include "overwatch.stack.queue" .root | nindent 4 }}
    {{- end }}
spec:
  replicas: {{ .replicas }}
  serviceName: {{ include "overwatch.stack.name" . }}
  podManagementPolicy: Parallel
  selector:
    matchLabels:
      {{- include "overwatch.stack.selectorLabels" . | nindent 6 }}
  {{- if .size }}
  {{- if .root.Values.persistence.enabled }}
  persistentVolumeClaimRetentionPolicy:
    whenDeleted: {{ .root.Values.persistence.whenDeleted }}
    whenScaled: Retain
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        {{- include "overwatch.stack.claim" . | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{- /* Combinations of the stack that cannot work, and changes that a living run does not take. */ -}}
{{- define "overwatch.stack.check" -}}
{{- $stack := .Values.stack -}}
{{- if not $stack.runId -}}
{{- fail "stack.enabled needs stack.runId: all parts belong to one run, e.g. maze-1" -}}
{{- end -}}
{{- if ne (int $stack.learner.replicas) 1 -}}
{{- fail (printf "stack.learner.replicas: %d: a run has one learner, which signs its weights and acknowledges its experience; give it more processors, or train with stack.trainer.nodes" (int $stack.learner.replicas)) -}}
{{- end -}}
{{- if $stack.learner.enabled -}}
{{- if not $stack.replay.enabled -}}
{{- fail "stack.learner.enabled without stack.replay.enabled: a learner learns from what actors append to replay; set stack.replay.enabled=true" -}}
{{- end -}}
{{- if not $stack.config.world -}}
{{- fail "stack.learner.enabled needs stack.config.world, e.g. goodhart:small" -}}
{{- end -}}
{{- end -}}
{{- if $stack.actors.enabled -}}
{{- range $part := list "learner" "orchestrator" -}}
{{- if not (index $stack $part).enabled -}}
{{- fail (printf "stack.actors.enabled without stack.%s.enabled: actors act with the learner's weights, whose key is in the orchestrator's record; set stack.%s.enabled=true, or stack.actors.enabled=false" $part $part) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (or $stack.actors.enabled $stack.replay.enabled) (semverCompare "<1.28.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "stack: pods take their numbers from a label that Kubernetes has from 1.28 on; this one is %s" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if not (include "overwatch.stack.parts" .) -}}
{{- fail "stack.enabled, and none of its parts is: set e.g. stack.learner.enabled or stack.trainer.enabled" -}}
{{- end -}}
{{- if and $stack.trainer.enabled (not .Values.persistence.enabled) (gt (int $stack.trainer.nodes) 1) -}}
{{- fail "stack.trainer.nodes above 1 without persistence.enabled: all nodes go on from one checkpoint, on a volume that they share; name it in stack.trainer.volumeClaim" -}}
{{- end -}}
{{- if and $stack.trainer.enabled $stack.learner.enabled -}}
{{- fail "stack.trainer.enabled and stack.learner.enabled: both would be the trainer of run stack.runId; install a release for each" -}}
{{- end -}}
{{- range $rules := list $stack.extraIngress $stack.extraEgress -}}
{{- range $part, $_ := $rules -}}
{{- if not (has $part (list "orchestrator" "replay" "learner" "actors" "rollouts" "trainer")) -}}
{{- fail (printf "stack.extraIngress, stack.extraEgress: %s is no part of the stack; use orchestrator, replay, learner, actors, rollouts or trainer" $part) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $name := include "overwatch.stack.name" (dict "root" . "part" "stack") -}}
{{- $held := get ((lookup "v1" "ConfigMap" .Release.Namespace $name) | default dict) "data" | default dict -}}
{{- if $held -}}
{{- $why := dict "run" "stack.runId" "shards" "stack.replay.shards" "run.yaml" "stack.config" -}}
{{- $now := dict "run" $stack.runId "shards" ($stack.replay.shards | toString) "run.yaml" (toYaml $stack.config) -}}
{{- range $key, $value := $why -}}
{{- if ne (get $held $key | trim) (get $now $key | trim) -}}
{{- fail (printf "%s differs from that of run %s, which this release trains: it was %q and would be %q. Experience, checkpoints and weights of a run belong to what it began with; put the value back, or install another release for another run" $value (get $held "run") (get $held $key | trim) (get $now $key | trim)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
