// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics are the server's metrics. Times are in seconds, sizes in bytes.
type metrics struct {
	requests  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	bytesIn   prometheus.Counter
	bytesOut  prometheus.Counter
	refused   prometheus.Counter
	badFrames prometheus.Counter
	panics    prometheus.Counter
	held      *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "ringmaster", Subsystem: "broker", Name: name, Help: help})
	}
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "ringmaster", Subsystem: "broker", Name: "requests_total",
			Help: "Requests handled, by API and by the first Kafka error code of the response (0 for none).",
		}, []string{"api", "error"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "ringmaster", Subsystem: "broker", Name: "request_duration_seconds",
			Help:    "Time from a request's turn on its connection to its response, by API; a Fetch includes its wait for records.",
			Buckets: prometheus.ExponentialBuckets(0.0002, 2.5, 12),
		}, []string{"api"}),
		bytesIn:   counter("received_bytes_total", "Bytes of requests received."),
		bytesOut:  counter("sent_bytes_total", "Bytes of responses sent."),
		refused:   counter("connections_refused_total", "Connections closed at once because a limit was reached."),
		badFrames: counter("bad_requests_total", "Connections closed because of bytes that are no request that is offered."),
		panics:    counter("handler_panics_total", "Requests whose handler failed with a panic."),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "ringmaster", Subsystem: "broker", Name: "held_heartbeats_total",
			Help: "Heartbeats of managed groups whose answer was held back, by what ended that: news for the member, the time, or what came next on the connection.",
		}, []string{"end"}),
	}
}

// collectors returns all metrics.
func (m *metrics) collectors(s *Server) []prometheus.Collector {
	connections := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "ringmaster", Subsystem: "broker", Name: "connections", Help: "Open connections of Kafka clients.",
	}, func() float64 { return float64(s.conns.count()) })
	sessions := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "ringmaster", Subsystem: "broker", Name: "fetch_sessions", Help: "Sessions of consumers that fetch what is new (KIP-227).",
	}, func() float64 { return float64(s.sessions.count()) })
	return []prometheus.Collector{m.requests, m.latency, m.bytesIn, m.bytesOut, m.refused, m.badFrames, m.panics, m.held, connections, sessions}
}

// observe counts a request. resp is nil where there is none.
func (m *metrics) observe(r *request, took time.Duration, resp kmsg.Response) {
	name := kmsg.NameForKey(r.key)
	code := r.failed
	if code == codeNone {
		code = topLevelCode(resp)
	}
	m.requests.WithLabelValues(name, strconv.Itoa(int(code))).Inc()
	if r.key == keyProduce || r.key == keyFetch {
		m.latency.WithLabelValues(name).Observe(took.Seconds())
	}
}

// topLevelCode returns the error code of a response that has one for the whole.
func topLevelCode(resp kmsg.Response) int16 {
	switch v := resp.(type) {
	case *kmsg.FindCoordinatorResponse:
		return v.ErrorCode
	case *kmsg.JoinGroupResponse:
		return v.ErrorCode
	case *kmsg.SyncGroupResponse:
		return v.ErrorCode
	case *kmsg.HeartbeatResponse:
		return v.ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return v.ErrorCode
	case *kmsg.LeaveGroupResponse:
		return v.ErrorCode
	case *kmsg.OffsetFetchResponse:
		return v.ErrorCode
	case *kmsg.ListGroupsResponse:
		return v.ErrorCode
	default:
		return codeNone
	}
}
