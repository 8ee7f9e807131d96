// Package prometheus hands the metrics of gates to client_golang:
//
//	prometheus.MustRegister(callgateprometheus.NewCollector(gate))
//
// They are those of package metrics, which serves them without client_golang.
package prometheus

import (
	"github.com/prometheus/client_golang/prometheus"

	"callgate.dev/callgate"
	"callgate.dev/callgate/metrics"
)

// Collector collects the metrics of one or more gates. Where there are several, the label "gate" is
// their place.
type Collector struct {
	gates []*callgate.Gate
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector makes a collector of gates.
func NewCollector(gates ...*callgate.Gate) *Collector {
	return &Collector{gates: append([]*callgate.Gate(nil), gates...)}
}

// Describe sends the metrics' names, for the registry to see that nobody else has them.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	if c == nil {
		return
	}
	families, _ := metrics.Families(c.gates...) // their names are there in any case
	for _, family := range families {
		to <- describe(family)
	}
}

// Collect sends the metrics as they are now; of a gate that is closed, the error.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	if c == nil {
		return
	}
	families, err := metrics.Families(c.gates...)
	if err != nil {
		to <- prometheus.NewInvalidMetric(describe(families[0]), err)
		return
	}
	for _, family := range families {
		described, kind := describe(family), prometheus.GaugeValue
		if family.Kind == metrics.Counter {
			kind = prometheus.CounterValue
		}
		for _, sample := range family.Samples {
			to <- constant(described, kind, sample)
		}
	}
}

func describe(family metrics.Family) *prometheus.Desc {
	name := family.Name
	if family.Kind == metrics.Counter {
		name += "_total"
	}
	return prometheus.NewDesc(name, family.Help, family.Labels, nil)
}

func constant(described *prometheus.Desc, kind prometheus.ValueType, sample metrics.Sample) prometheus.Metric {
	metric, err := prometheus.NewConstMetric(described, kind, float64(sample.Value), sample.Values...)
	if err != nil {
		return prometheus.NewInvalidMetric(described, err)
	}
	return metric
}
