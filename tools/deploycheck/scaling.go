package deploycheck

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// checkScaling: one autoscaler for a workload that is there and has no fixed size.
func (c *Cluster) checkScaling() {
	scaled := map[string]string{}
	target := func(where, apiVersion, kind, name string, least, most *int32) {
		w := c.workload(kind, name)
		switch {
		case w == nil || apiVersion != "apps/v1":
			c.fault("%s: its target %s %s %s is not here", where, apiVersion, kind, name)
		case w.replicas != nil:
			c.fault("%s: its target %s has replicas: %d, which applying it again would set", where, name, *w.replicas)
		case scaled[name] != "":
			c.fault("%s: %s scales %s already", where, scaled[name], name)
		}
		scaled[name] = where
		if least == nil || most == nil || *least < 1 || *most < *least {
			c.fault("%s: want at least one pod always, and a most", where)
		}
	}
	for _, h := range c.hpas {
		where, ref := "HorizontalPodAutoscaler "+h.Name, h.Spec.ScaleTargetRef
		most := h.Spec.MaxReplicas
		target(where, ref.APIVersion, ref.Kind, ref.Name, h.Spec.MinReplicas, &most)
		for _, m := range h.Spec.Metrics {
			if m.External == nil || m.External.Target.Type != autoscalingv2.ValueMetricType || m.External.Target.Value == nil {
				c.fault("%s: a ratio of the fleet wants an external metric with a Value", where)
			}
		}
		c.checkBehavior(where, h.Spec.Behavior)
	}
	for _, s := range c.scaled {
		where, ref := "ScaledObject "+s.Name, s.Spec.ScaleTargetRef
		target(where, ref.APIVersion, ref.Kind, ref.Name, s.Spec.MinReplicaCount, s.Spec.MaxReplicaCount)
		if s.Spec.Advanced == nil || s.Spec.Advanced.HorizontalPodAutoscalerConfig == nil {
			c.fault("%s: it says nothing about how fast", where)
		} else {
			c.checkBehavior(where, s.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior)
		}
		if len(s.Spec.Triggers) == 0 {
			c.fault("%s: it has no trigger", where)
		}
		for _, t := range s.Spec.Triggers {
			c.checkTrigger(where, t)
		}
	}
}

func (c *Cluster) checkTrigger(where string, t ScaledTrigger) {
	if t.Type != "prometheus" || t.MetricType != autoscalingv2.ValueMetricType {
		c.fault("%s: want a trigger of the type prometheus with the metricType Value", where)
	}
	known := prometheusTrigger()
	for key := range t.Metadata {
		if _, ok := known[key]; !ok {
			c.fault("%s: a prometheus trigger has no %q; it has %v", where, key, slices.Sorted(maps.Keys(known)))
		}
	}
	for key, must := range known {
		if must && t.Metadata[key] == "" {
			c.fault("%s: a prometheus trigger needs %s", where, key)
		}
	}
	if v, err := strconv.ParseFloat(t.Metadata["threshold"], 64); err != nil || v <= 0 || v >= 1 {
		c.fault("%s: threshold %q: want a part of the fleet, below 1", where, t.Metadata["threshold"])
	}
}

// checkBehavior: slowly down, because a drain takes as long as a worker's longest sample
// and the next rollout comes soon.
func (c *Cluster) checkBehavior(where string, b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	if b == nil || b.ScaleDown == nil || b.ScaleUp == nil {
		c.fault("%s: it says nothing about how fast", where)
		return
	}
	if w := b.ScaleDown.StabilizationWindowSeconds; w == nil || *w < 600 || *w > 3600 {
		c.fault("%s: the window before scaling down must outlast an update of the weights: 600 to 3600 s", where)
	}
	for _, p := range b.ScaleDown.Policies {
		if p.PeriodSeconds < 1 || p.PeriodSeconds > 1800 || p.Value < 1 {
			c.fault("%s: scaling down by %d in %d s", where, p.Value, p.PeriodSeconds)
		}
	}
}

// metric is the name of one of ours in a query.
var metric = regexp.MustCompile(`\brewardloop_[a-z_]+`)

// Metrics are the names of rewardloop's metrics in a text, each once.
func Metrics(text string) []string {
	return slices.Compact(slices.Sorted(slices.Values(metric.FindAllString(text, -1))))
}
