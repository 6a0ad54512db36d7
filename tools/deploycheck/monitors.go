package deploycheck

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Job is the name of the scrape job, which the rules and the dashboard name.
const Job = "rewardloop"

// PodMonitor is the Prometheus Operator's monitoring.coreos.com/v1 PodMonitor, with the fields
// of its CustomResourceDefinition that have a meaning here (prometheus-operator 0.83).
type PodMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Selector            metav1.LabelSelector `json:"selector"`
		JobLabel            string               `json:"jobLabel"`
		PodMetricsEndpoints []MetricsEndpoint    `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// MetricsEndpoint is a port of pods, and how it is asked.
type MetricsEndpoint struct {
	Port          string `json:"port"`
	Path          string `json:"path"`
	Interval      string `json:"interval"`
	Scheme        string `json:"scheme"`
	Authorization *struct {
		Credentials secretKey `json:"credentials"`
	} `json:"authorization"`
	TLSConfig *struct {
		CA struct {
			Secret secretKey `json:"secret"`
		} `json:"ca"`
		ServerName string `json:"serverName"`
	} `json:"tlsConfig"`
	Relabelings []struct {
		SourceLabels []string `json:"sourceLabels"`
		TargetLabel  string   `json:"targetLabel"`
	} `json:"relabelings"`
}

// secretKey is a key of a secret.
type secretKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// PrometheusRule is the Prometheus Operator's monitoring.coreos.com/v1 PrometheusRule.
type PrometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec Rules `json:"spec"`
}

// Rules are what a file of rules of Prometheus holds.
type Rules struct {
	Groups []RuleGroup `json:"groups"`
}

// RuleGroup is what is evaluated together.
type RuleGroup struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// Rule is a recording or an alert.
type Rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// checkMonitors: each selects pods that are asked where they answer, as they want to be asked,
// under the name of the job that the rules name; and where there is one, all pods of ours are.
func (c *Cluster) checkMonitors() {
	watched := map[string]bool{}
	for _, m := range c.monitors {
		where := "PodMonitor " + m.Name
		pods := c.matching(&m.Spec.Selector)
		if len(pods) == 0 || len(m.Spec.Selector.MatchLabels) == 0 {
			c.fault("%s selects no pods", where)
		}
		if len(m.Spec.PodMetricsEndpoints) == 0 {
			c.fault("%s: it asks for nothing", where)
		}
		for _, w := range pods {
			watched[w.name] = true
			if job := w.template.Labels[m.Spec.JobLabel]; job != Job {
				c.fault("%s: the job of %s is %q by the label %q, and the rules name %s", where, w.name, job, m.Spec.JobLabel, Job)
			}
			for _, e := range m.Spec.PodMetricsEndpoints {
				c.checkEndpoint(where, w, e)
			}
		}
	}
	for _, w := range c.workloads {
		ours := slices.ContainsFunc(w.template.Spec.Containers, func(p corev1.Container) bool { return strings.HasPrefix(p.Image, "rewardloop:") })
		if len(c.monitors) > 0 && ours && !watched[w.name] {
			c.fault("no PodMonitor selects the pods of %s", w.name)
		}
	}
}

func (c *Cluster) checkEndpoint(where string, w workload, e MetricsEndpoint) {
	if e.Path != "/metrics" || !w.opens(e.Port, 0) {
		c.fault("%s: the pods of %s do not answer at port %q, path %q", where, w.name, e.Port, e.Path)
	}
	// Prometheus' namespace is let in by a policy, as everything is that comes from outside.
	if len(c.policies) > 0 && !slices.ContainsFunc(c.policies, c.letsMonitoringIn(w)) {
		c.fault("%s: no NetworkPolicy lets the namespace monitoring in to the pods of %s", where, w.name)
	}
	var tokens, tls bool
	for _, container := range w.template.Spec.Containers {
		for _, arg := range container.Args {
			tokens = tokens || strings.HasPrefix(arg, "--token-file=")
			tls = tls || strings.HasPrefix(arg, "server.tls_cert=")
		}
	}
	if tokens != (e.Authorization != nil) {
		c.fault("%s: the pods of %s want a token: %t; it sends one: %t", where, w.name, tokens, e.Authorization != nil)
	}
	if e.Authorization != nil {
		c.refer(where, "secret", e.Authorization.Credentials.Name, []corev1.KeyToPath{{Key: e.Authorization.Credentials.Key}})
	}
	if tls != (e.Scheme == "https") || tls != (e.TLSConfig != nil) {
		c.fault("%s: the pods of %s use TLS: %t; the monitor asks with the scheme %q and has a tlsConfig: %t", where, w.name, tls, e.Scheme, e.TLSConfig != nil)
	}
	if e.TLSConfig != nil {
		c.refer(where, "secret", e.TLSConfig.CA.Secret.Name, []corev1.KeyToPath{{Key: e.TLSConfig.CA.Secret.Key}})
		if e.TLSConfig.ServerName == "" {
			c.fault("%s: a pod's address is in no certificate: it needs a serverName", where)
		}
	}
}

// letsMonitoringIn reports whether a policy lets the namespace monitoring in to a workload.
func (c *Cluster) letsMonitoringIn(w workload) func(p *networkingv1.NetworkPolicy) bool {
	return func(p *networkingv1.NetworkPolicy) bool {
		own, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || !own.Matches(labels.Set(w.template.Labels)) {
			return false
		}
		for _, rule := range p.Spec.Ingress {
			for _, peer := range rule.From {
				s, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
				if err == nil && peer.PodSelector == nil && !s.Empty() && s.Matches(labels.Set{"kubernetes.io/metadata.name": "monitoring"}) {
					return true
				}
			}
		}
		return false
	}
}
