package deploycheck

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Cluster is all objects of a kustomization, sorted by what they are.
type Cluster struct {
	workloads  []workload
	services   []*corev1.Service
	configMaps []*corev1.ConfigMap
	budgets    []*policyv1.PodDisruptionBudget
	policies   []*networkingv1.NetworkPolicy
	hpas       []*autoscalingv2.HorizontalPodAutoscaler
	scaled     []*ScaledObject
	monitors   []*PodMonitor
	// supplied are the objects that the user makes: "secret/name" to its keys.
	supplied map[string][]string
	used     map[string]bool // what was referred to
	faults   []error
}

// workload is a Deployment or a StatefulSet.
type workload struct {
	kind, name string
	replicas   *int32
	selector   *metav1.LabelSelector
	template   corev1.PodTemplateSpec
	service    string // a StatefulSet's
}

// NewCluster sorts objects. supplied are those that the user makes: "secret/name" to its
// keys.
func NewCluster(objects []metav1.Object, supplied map[string][]string) *Cluster {
	c := &Cluster{supplied: supplied, used: map[string]bool{}}
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			c.workloads = append(c.workloads, workload{"Deployment", o.Name, o.Spec.Replicas, o.Spec.Selector, o.Spec.Template, ""})
		case *appsv1.StatefulSet:
			c.workloads = append(c.workloads, workload{"StatefulSet", o.Name, o.Spec.Replicas, o.Spec.Selector, o.Spec.Template, o.Spec.ServiceName})
		case *corev1.Service:
			c.services = append(c.services, o)
		case *corev1.ConfigMap:
			c.configMaps = append(c.configMaps, o)
		case *policyv1.PodDisruptionBudget:
			c.budgets = append(c.budgets, o)
		case *networkingv1.NetworkPolicy:
			c.policies = append(c.policies, o)
		case *autoscalingv2.HorizontalPodAutoscaler:
			c.hpas = append(c.hpas, o)
		case *ScaledObject:
			c.scaled = append(c.scaled, o)
		case *PodMonitor:
			c.monitors = append(c.monitors, o)
		}
	}
	return c
}

// Check returns everything that does not fit together.
func (c *Cluster) Check() error {
	c.faults = nil
	for _, w := range c.workloads {
		c.checkWorkload(w)
		c.checkPod(w)
	}
	c.checkUnused()
	c.checkImages()
	c.checkServices()
	c.checkBudgets()
	c.checkPolicies()
	c.checkScaling()
	c.checkMonitors()
	return errors.Join(c.faults...)
}

func (c *Cluster) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf(format, args...))
}

// suppliedLine is a row of the table in the README: | `secret/name` | `key`, `key` | … |.
var suppliedLine = regexp.MustCompile("(?m)^\\| `((?:secret|configmap)/[a-z-]+)` \\| ([^|]*) \\|")

// Supplied reads from a README which objects the user makes, with their keys.
func Supplied(readme string) (map[string][]string, error) {
	text, err := os.ReadFile(readme)
	if err != nil {
		return nil, err
	}
	supplied := map[string][]string{}
	for _, m := range suppliedLine.FindAllStringSubmatch(string(text), -1) {
		for key := range strings.SplitSeq(m[2], ",") {
			supplied[m[1]] = append(supplied[m[1]], strings.Trim(key, " `"))
		}
	}
	if len(supplied) == 0 {
		return nil, fmt.Errorf("%s lists no object that the user makes", readme)
	}
	return supplied, nil
}

// configMap returns the one of that name, nil if there is none.
func (c *Cluster) configMap(name string) *corev1.ConfigMap {
	for _, m := range c.configMaps {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// generated returns the configMap of a generator, whose name has a hash behind it.
func (c *Cluster) generated(name string) *corev1.ConfigMap {
	for _, m := range c.configMaps {
		if rest, ok := strings.CutPrefix(m.Name, name+"-"); ok && !strings.Contains(rest, "-") {
			return m
		}
	}
	return nil
}

// workload returns the one of that kind and name, nil if there is none.
func (c *Cluster) workload(kind, name string) *workload {
	for i, w := range c.workloads {
		if w.kind == kind && w.name == name {
			return &c.workloads[i]
		}
	}
	return nil
}

// matching are the workloads whose pods a selector selects.
func (c *Cluster) matching(s *metav1.LabelSelector) []workload {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		c.fault("selector: %w", err)
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.workloads), func(w workload) bool {
		return !selector.Matches(labels.Set(w.template.Labels))
	})
}

// opens reports whether a container of the workload opens the port, by name or number.
func (w workload) opens(name string, number int32) bool {
	for _, container := range w.template.Spec.Containers {
		for _, p := range container.Ports {
			if name != "" && p.Name == name || name == "" && p.ContainerPort == number {
				return true
			}
		}
	}
	return false
}
