{{- define "keyturn.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Names of objects: at most 50, so that there is room for endings. */}}
{{- define "keyturn.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "keyturn.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* Objects without a namespace carry it in their names: two releases must not meet. */}}
{{- define "keyturn.clusterName" -}}
{{- printf "%s-%s" (include "keyturn.namespace" .) (include "keyturn.fullname" .) }}
{{- end }}

{{- define "keyturn.selectorLabels" -}}
app.kubernetes.io/name: {{ include "keyturn.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "keyturn.labels" -}}
{{ include "keyturn.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The metadata of an object: (list $ NAME ANNOTATIONS NAMESPACE), where an empty namespace means an object of the cluster; more labels may follow. */}}
{{- define "keyturn.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 1 }}
{{- with index . 3 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "keyturn.labels" $root | nindent 2 }}
  {{- range slice . 4 }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (index . 2) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "keyturn.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "keyturn.fullname" .) }}
{{- else }}
{{- required "serviceAccount.name is required when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "keyturn.claimName" -}}
{{- .Values.persistence.existingClaim | default (printf "%s-data" (include "keyturn.fullname" .)) }}
{{- end }}

{{/* The names under which clients reach the Service. */}}
{{- define "keyturn.hostNames" -}}
{{- $name := include "keyturn.fullname" . }}
{{- $namespace := include "keyturn.namespace" . }}
{{- $names := list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.cluster.local" $name $namespace) }}
{{- concat $names .Values.server.tls.extraNames | toJson }}
{{- end }}

{{- define "keyturn.image" -}}
{{- $repository := .Values.image.repository }}
{{- with .Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}
{{- end }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* Refuses what would lose passwords. */}}
{{- define "keyturn.refuse" -}}
{{- if not .Values.dev }}
{{- if not .Values.seal.existingSecret }}
{{- fail (printf "\n\nseal.existingSecret is required: the Secret with the key that seals the store. Make it once, keep a copy (losing it loses every password):\n\n  openssl rand -base64 32 | kubectl -n %s create secret generic keyturn-seal --from-file=key=/dev/stdin\n\nand give --set seal.existingSecret=keyturn-seal. To only try it out: --set dev=true, then the key lies beside the data." (include "keyturn.namespace" .)) }}
{{- end }}
{{- if not .Values.persistence.enabled }}
{{- fail "\n\npersistence.enabled=false keeps the store in an emptyDir, which is gone with the pod, and every password with it. It is permitted only with dev=true." }}
{{- end }}
{{- end }}
{{- end }}
