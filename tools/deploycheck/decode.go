package deploycheck

import (
	"errors"
	"fmt"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kinds are those that deploy/ uses. Another one is added here, with its rules.
func kinds() map[string]func() metav1.Object {
	return map[string]func() metav1.Object{
		"v1 ConfigMap": func() metav1.Object { return new(corev1.ConfigMap) },
		"v1 Namespace": func() metav1.Object { return new(corev1.Namespace) },
		"v1 Service":   func() metav1.Object { return new(corev1.Service) },

		"apps/v1 Deployment":                      func() metav1.Object { return new(appsv1.Deployment) },
		"apps/v1 StatefulSet":                     func() metav1.Object { return new(appsv1.StatefulSet) },
		"autoscaling/v2 HorizontalPodAutoscaler":  func() metav1.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
		"keda.sh/v1alpha1 ScaledObject":           func() metav1.Object { return new(ScaledObject) },
		"monitoring.coreos.com/v1 PodMonitor":     func() metav1.Object { return new(PodMonitor) },
		"monitoring.coreos.com/v1 PrometheusRule": func() metav1.Object { return new(PrometheusRule) },
		"networking.k8s.io/v1 NetworkPolicy":      func() metav1.Object { return new(networkingv1.NetworkPolicy) },
		"policy/v1 PodDisruptionBudget":           func() metav1.Object { return new(policyv1.PodDisruptionBudget) },
	}
}

// Build builds the kustomization in dir and reads every object of it. The error joins all
// that is wrong with the objects by themselves; those that could be read are returned.
func Build(dir string) ([]metav1.Object, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("kustomization %s: %w", filepath.Base(dir), err)
	}
	var (
		objects []metav1.Object
		faults  []error
	)
	for _, resource := range built.Resources() {
		text, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", resource.CurId(), err)
		}
		o, err := decode(resource.GetApiVersion()+" "+resource.GetKind(), text)
		if o != nil {
			objects = append(objects, o)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %s: %w", resource.GetKind(), resource.GetName(), err))
		}
	}
	return objects, errors.Join(faults...)
}

// decode reads an object into the type of its kind, whose fields must have the case that
// they are written in, and of whose enumerations each value must be one.
func decode(kind string, text []byte) (metav1.Object, error) {
	empty, known := kinds()[kind]
	if !known {
		return nil, fmt.Errorf("apiVersion and kind %s are not among those that are used here", kind)
	}
	o := empty()
	strict, err := json.UnmarshalStrict(text, o)
	if err != nil {
		return nil, err
	}
	return o, errors.Join(append(strict, enumerations(o)...)...)
}
