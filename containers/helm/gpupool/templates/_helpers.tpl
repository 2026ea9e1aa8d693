{{- define "gpupool.name" -}}
{{- if contains "gpupool" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-gpupool" (.Release.Name | trunc 32 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "gpupool.selector" -}}
app.kubernetes.io/name: gpupool
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpupool.labels" -}}
{{ include "gpupool.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "gpupool.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "gpupool.host" -}}
{{ include "gpupool.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* What nodes and users dial. */ -}}
{{- define "gpupool.endpoint" -}}
{{ if ne .Values.pool.tls.mode "off" }}tls:{{ end }}{{ include "gpupool.host" . }}:{{ .Values.service.port }}
{{- end }}

{{- define "gpupool.tlsSecret" -}}
{{ if eq .Values.pool.tls.mode "secret" }}{{ required "pool.tls.secretName is missing: pool.tls.mode is secret" .Values.pool.tls.secretName }}{{ else }}{{ include "gpupool.name" . }}-tls{{ end }}
{{- end }}

{{- /* PodSecurity: restricted. */ -}}
{{- define "gpupool.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
# At every later mount the volume would be opened to the group again, and the pool refuses a home that others may enter.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "gpupool.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* A value of TOML: JSON's texts, numbers and lists are; tables are written inline. */ -}}
{{- define "gpupool.toml" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }},{{ end }} {{ $key | toJson }} = {{ get $ $key | toJson }}{{ end }} }
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{- define "gpupool.poolEnvironment" -}}
# A folder of its own: the volume itself belongs to root.
- name: GPUPOOL_HOME
  value: /var/lib/gpupool/home
{{- if .Values.pool.postgresql.url }}
- name: GPUPOOL_LEDGER
  value: {{ .Values.pool.postgresql.url | quote }}
{{- with .Values.pool.postgresql.passwordSecret }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $.Values.pool.postgresql.passwordKey }}
{{- end }}
{{- end }}
{{- end }}
