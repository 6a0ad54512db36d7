package deploycheck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// words are the values of the enumerations in use, by their Go type. The server of a
// cluster refuses any other; the types are plain strings.
func words() map[string][]string {
	m := map[string][]string{}
	add(m, corev1.ProtocolTCP, corev1.ProtocolUDP)
	add(m, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	add(m, corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer)
	add(m, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
	add(m, corev1.ScheduleAnyway, corev1.DoNotSchedule)
	add(m, corev1.TolerationOpExists, corev1.TolerationOpEqual)
	add(m, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule)
	add(m, corev1.SeccompProfileTypeRuntimeDefault)
	add(m, corev1.Capability("ALL"))
	add(m, corev1.StorageMediumMemory)
	add(m, appsv1.ParallelPodManagement, appsv1.OrderedReadyPodManagement)
	add(m, appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType)
	add(m, appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)
	add(m, policyv1.AlwaysAllow, policyv1.IfHealthyBudget)
	add(m, networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress)
	add(m, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
	add(m, autoscalingv2.ExternalMetricSourceType, autoscalingv2.PodsMetricSourceType)
	add(m, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType, autoscalingv2.UtilizationMetricType)
	add(m, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect, autoscalingv2.DisabledPolicySelect)
	add(m, autoscalingv2.PodsScalingPolicy, autoscalingv2.PercentScalingPolicy)
	return m
}

func add[T ~string](m map[string][]string, values ...T) {
	for _, v := range values {
		name := reflect.TypeFor[T]().String()
		m[name] = append(m[name], string(v))
	}
}

// enumerations finds values that are none of their enumeration's.
func enumerations(o any) []error {
	var faults []error
	known := words()
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(path, v.Elem())
			}
		case reflect.Struct:
			if v.Type().PkgPath() == "k8s.io/apimachinery/pkg/api/resource" {
				return
			}
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					walk(path+"."+strings.Split(f.Tag.Get("json"), ",")[0], v.Field(i))
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				walk(path+"."+key.String(), v.MapIndex(key))
			}
		case reflect.String:
			name := v.Type().String()
			if name == "string" || name == "types.UID" || v.String() == "" {
				return
			}
			if !slices.Contains(known[name], v.String()) {
				faults = append(faults, fmt.Errorf("%s: %q is not among the values of %s: %v", strings.TrimLeft(path, "."), v.String(), name, known[name]))
			}
		}
	}
	walk("", reflect.ValueOf(o))
	return faults
}
