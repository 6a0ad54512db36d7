package deploycheck

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScaledObject is KEDA's keda.sh/v1alpha1 ScaledObject, with the fields of its
// CustomResourceDefinition that have a meaning here (KEDA 2.17, config/crd/bases).
type ScaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ScaleTargetRef struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
		} `json:"scaleTargetRef"`
		PollingInterval  *int32 `json:"pollingInterval"`
		CooldownPeriod   *int32 `json:"cooldownPeriod"`
		IdleReplicaCount *int32 `json:"idleReplicaCount"`
		MinReplicaCount  *int32 `json:"minReplicaCount"`
		MaxReplicaCount  *int32 `json:"maxReplicaCount"`
		Advanced         *struct {
			RestoreToOriginalReplicaCount bool `json:"restoreToOriginalReplicaCount"`
			HorizontalPodAutoscalerConfig *struct {
				Name     string                                         `json:"name"`
				Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []ScaledTrigger `json:"triggers"`
	} `json:"spec"`
}

// ScaledTrigger is one of the signals of a ScaledObject.
type ScaledTrigger struct {
	Type              string                         `json:"type"`
	Name              string                         `json:"name"`
	MetricType        autoscalingv2.MetricTargetType `json:"metricType"`
	Metadata          map[string]string              `json:"metadata"`
	AuthenticationRef *struct {
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"authenticationRef"`
}

// prometheusTrigger is what the metadata of a trigger of the type prometheus may hold;
// true: it must.
func prometheusTrigger() map[string]bool {
	return map[string]bool{
		"serverAddress": true, "query": true, "threshold": true,
		"activationThreshold": false, "namespace": false, "queryParameters": false, "customHeaders": false,
		"ignoreNullValues": false, "unsafeSsl": false, "timeout": false, "authModes": false,
	}
}
