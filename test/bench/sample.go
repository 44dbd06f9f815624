// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
)

// sample is what one measurement found.
type sample struct {
	Work  string `json:"work"`
	Peer  string `json:"peer"`
	Round int    `json:"round"`
	// Error is why there is nothing else.
	Error string `json:"error,omitempty"`

	Seconds float64 `json:"seconds,omitempty"`
	Records int64   `json:"records,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"`
	// P50, P99 and P999 are latencies in milliseconds.
	P50  float64 `json:"p50Ms,omitempty"`
	P99  float64 `json:"p99Ms,omitempty"`
	P999 float64 `json:"p999Ms,omitempty"`
	// ServerCPU and ClientCPU are in seconds.
	ServerCPU float64 `json:"serverCPU,omitempty"`
	ClientCPU float64 `json:"clientCPU,omitempty"`
	// PeakBytes is the server's largest resident memory, DiskReadBytes what it read from disk.
	PeakBytes     int64 `json:"peakBytes,omitempty"`
	DiskReadBytes int64 `json:"diskReadBytes,omitempty"`
	// ReadBytes is what the consuming groups read while others produced.
	ReadBytes int64 `json:"readBytes,omitempty"`
	// Rate is the rate in bytes per second that was asked for in an open loop.
	Rate float64 `json:"rate,omitempty"`
	// FirstMs is the time from a server's start to its first answer, IdleBytes its resident memory idleAfter later.
	FirstMs   float64 `json:"firstMs,omitempty"`
	IdleBytes int64   `json:"idleBytes,omitempty"`
	// IdleAnonBytes is the part of IdleBytes that is no file's: not the program's own code, above all.
	IdleAnonBytes int64 `json:"idleAnonBytes,omitempty"`
	// Phases are what a group went through.
	Phases []phase `json:"phases,omitempty"`
	// Load is the machine's load average over the last minute.
	Load float64 `json:"load"`
}

func (s *sample) mbps() float64 {
	if s.Seconds == 0 {
		return 0
	}
	return float64(s.Bytes) / s.Seconds / 1e6
}

func (s *sample) cpuPerGB() float64 { return perGB(s.ServerCPU, s.Bytes) }
func (s *sample) p99() float64      { return s.P99 }
func (s *sample) idleMB() float64   { return float64(s.IdleBytes) / 1e6 }
func (s *sample) firstMs() float64  { return s.FirstMs }

// perGB divides seconds by bytes.
func perGB(seconds float64, bytes int64) float64 {
	if bytes == 0 {
		return 0
	}
	return seconds / (float64(bytes) / 1e9)
}

// String is the sample as a line of progress.
func (s *sample) String() string {
	switch {
	case s.Error != "":
		return fmt.Sprintf("%-17s %s", s.Peer, s.Error)
	case len(s.Phases) > 0:
		return fmt.Sprintf("%-17s %s", s.Peer, phasesLine(s.Phases))
	case s.FirstMs > 0:
		return fmt.Sprintf("%-17s first answer %.0f ms, idle %.0f MB", s.Peer, s.FirstMs, float64(s.IdleBytes)/1e6)
	}
	return fmt.Sprintf("%-17s %7.1f MB/s %8.0f records/s  p50 %.2f p99 %.2f p99.9 %.2f ms  CPU s/GB %.2f (client %.2f)  peak %.0f MB",
		s.Peer, s.mbps(), float64(s.Records)/s.Seconds, s.P50, s.P99, s.P999, s.cpuPerGB(), perGB(s.ClientCPU, s.Bytes), float64(s.PeakBytes)/1e6)
}

// figures are a figure of a work's rounds with a peer, or with all if that is "".
func figures(samples []*sample, work, peer string, figure func(*sample) float64) []float64 {
	var all []float64
	for _, s := range samples {
		if s.Work == work && (s.Peer == peer || peer == "") && s.Error == "" {
			all = append(all, figure(s))
		}
	}
	return all
}

// medianOf is the median of a figure over a work's rounds with a peer; 0 if there is none.
func medianOf(samples []*sample, work, peer string, figure func(*sample) float64) float64 {
	return median(figures(samples, work, peer, figure))
}

// median returns the middle of values; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}

// quantile returns the smallest of values that at least a share q of them do not exceed; 0 of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, int(math.Ceil(q*float64(len(values))))-1)]
}

// mean returns the mean of values; 0 of none.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(1, len(values)))
}
