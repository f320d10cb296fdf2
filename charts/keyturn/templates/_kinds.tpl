{{/* The kinds of crds/ by scope; a test holds both lists against it. */}}
{{- define "keyturn.clusterKinds" -}}
{{- list "accesspolicies" "ldapauths" "ldapengines" "ldapgroupmappings" | toJson }}
{{- end }}
{{- define "keyturn.namespacedKinds" -}}
{{- list "ldapstaticroles" | toJson }}
{{- end }}
