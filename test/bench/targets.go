// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// target is a bound that a figure of a run, or the ratio of two peers' figures, is held against.
type target struct {
	what, work string
	// peer's figure is divided by of's, if there is one.
	peer, of string
	// figure sums up a work's rounds with a peer, mostly by their median; it is 0 if there are none.
	figure func(samples []*sample, work, peer string) float64
	unit   string
	// bound is the least value, or the largest one for atMost.
	bound  float64
	atMost bool
}

// The works, besides baseWork, that targets are held against.
const (
	loneWork    = "produce 1 KB, acks=all, 1 partition, 1 producer"
	largeWork   = "produce 1 KB, acks=all, 16 partitions, 8 producers, 1 MB requests"
	consumeWork = "consume 1 KB from memory, 16 partitions, 4 consumers"
	loneConsume = "consume 1 KB from memory, 1 partition, 1 consumer"
	coldConsume = "consume 1 KB from cold files, 16 partitions, 4 consumers"
	halfOfKafka = "produce at half of Kafka's top rate, open loop"
	halfOfOwn   = "produce at half of the own top rate, open loop"
	startWork   = "start"
)

// allTargets are those that the project set itself.
func allTargets() []target {
	var all []target
	least := func(what string, bound float64, peer, of string, works ...string) {
		for _, work := range works {
			all = append(all, target{what, work, peer, of, medianFigure((*sample).mbps), "MB/s", bound, false})
		}
	}
	most := func(what string, bound float64, peer, of string, figure func(*sample) float64, unit string, works ...string) {
		for _, work := range works {
			all = append(all, target{what, work, peer, of, medianFigure(figure), unit, bound, true})
		}
	}
	produces, consumes := []string{baseWork, loneWork, largeWork}, []string{consumeWork, loneConsume}
	least("durable produce, of the raw disk", 0.9, ringmasterFlush, diskFlush, produces...)
	least("durable produce, of Kafka with a flush per request", 1.5, ringmasterFlush, kafkaFlush, produces...)
	least("produce with the system's flush, of Kafka's default", 1.5, ringmasterOS, kafkaOS, produces...)
	least("consume, of Kafka", 2, ringmasterOS, kafkaOS, append(consumes, coldConsume)...)
	least("consume from memory, of kfake", 1, ringmasterOS, kfakeMemory, consumes...)
	most("p99 of durable produce, of Kafka's with a flush per request", 0.5, ringmasterFlush, kafkaFlush, (*sample).p99, "ms", halfOfKafka)
	most("p99 of produce with the system's flush, of Kafka's default", 0.5, ringmasterOS, kafkaOS, (*sample).p99, "ms", halfOfKafka)
	most("CPU seconds per GB of durable produce, of Kafka's", 0.5, ringmasterFlush, kafkaFlush, (*sample).cpuPerGB, "s/GB", produces...)
	most("CPU seconds per GB of produce with the system's flush, of Kafka's", 0.5, ringmasterOS, kafkaOS, (*sample).cpuPerGB, "s/GB", produces...)
	most("CPU seconds per GB of consume, of Kafka's", 0.5, ringmasterOS, kafkaOS, (*sample).cpuPerGB, "s/GB", append(consumes, coldConsume)...)
	most("idle memory", 40, ringmasterOS, "", (*sample).idleMB, "MB", startWork)
	most("start to first answer", 100, ringmasterOS, "", (*sample).firstMs, "ms", startWork)
	return append(all, groupTargets()...)
}

// groupTargets are those of groups.
func groupTargets() []target {
	p99 := phaseFigure(phaseStart, (*phase).seconds, func(values []float64) float64 { return quantile(values, 0.99) })
	middle := phaseFigure(phaseStart, (*phase).seconds, median)
	var all []target
	for _, protocol := range smallProtocols {
		all = append(all, target{phaseStart + ", p99", smallGroup + protocol, ringmasterGroups, "", p99, "s", 1, true})
	}
	for _, protocol := range largeProtocols {
		all = append(all, target{phaseStart + ", p99", largeGroup + protocol, ringmasterGroups, "", p99, "s", 5, true})
	}
	for _, protocol := range smallProtocols {
		all = append(all, target{phaseStart + ", median, of Kafka's", smallGroup + protocol, ringmasterGroups, kafkaGroups, middle, "s", 1, true})
	}
	for _, protocol := range largeProtocols {
		all = append(all, target{phaseStart + ", median, of Kafka's", largeGroup + protocol, ringmasterGroups, kafkaGroups, middle, "s", 1, true})
	}
	return all
}

// medianFigure is the median of a figure.
func medianFigure(figure func(*sample) float64) func(samples []*sample, work, peer string) float64 {
	return func(samples []*sample, work, peer string) float64 { return medianOf(samples, work, peer, figure) }
}

// phaseFigure sums up a figure of a phase.
func phaseFigure(name string, figure func(*phase) float64, sum func([]float64) float64) func(samples []*sample, work, peer string) float64 {
	return func(samples []*sample, work, peer string) float64 {
		return sum(phaseFigures(samples, work, peer, name, figure))
	}
}

// result is what a run says of a target.
type result struct {
	target
	// value is what is held against the bound; mine and theirs are the figures that it comes from.
	value, mine, theirs float64
}

// results returns those of the targets that a run has the samples of.
func results(samples []*sample) []result {
	var all []result
	for _, t := range allTargets() {
		r := result{target: t, mine: t.figure(samples, t.work, t.peer)}
		r.value = r.mine
		if t.of != "" {
			r.theirs = t.figure(samples, t.work, t.of)
			if r.theirs == 0 {
				continue
			}
			r.value = r.mine / r.theirs
		}
		if r.mine != 0 {
			all = append(all, r)
		}
	}
	return all
}

func (r *result) passed() bool {
	if r.atMost {
		return r.value <= r.bound
	}
	return r.value >= r.bound
}

// verdict is PASS, or by how much the bound is missed.
func (r *result) verdict() string {
	switch {
	case r.passed():
		return "PASS"
	case r.atMost:
		return fmt.Sprintf("over it by %.0f %%", 100*(r.value/r.bound-1))
	}
	return fmt.Sprintf("short of it by %.0f %%", 100*(1-r.value/r.bound))
}
