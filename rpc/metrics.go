package rpc

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/workers"
)

// serverMetrics count and time calls.
type serverMetrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	// unread counts calls ended before their request was read, closed connections of callers.
	unread *prometheus.CounterVec
	closed *prometheus.CounterVec
	// These count the calls that streams carry without interceptors.
	start, signal, result, createPromise, settlePromise methodMetrics
}

// methodMetrics are the calls of one method.
type methodMetrics struct {
	ended   *prometheus.CounterVec // by code
	ok      prometheus.Counter
	seconds prometheus.Observer
}

func (m *serverMetrics) of(method string) methodMetrics {
	ended := m.calls.MustCurryWith(prometheus.Labels{"method": method})
	return methodMetrics{ended, ended.WithLabelValues(codes.OK.String()), m.seconds.WithLabelValues(method)}
}

// count counts a call that has ended.
func (m *methodMetrics) count(code codes.Code, took time.Duration) {
	if code == codes.OK {
		m.ok.Inc()
	} else {
		m.ended.WithLabelValues(code.String()).Inc()
	}
	m.seconds.Observe(took.Seconds())
}

func newServerMetrics(reg prometheus.Registerer, d *workers.Dispatcher) (*serverMetrics, error) {
	m := &serverMetrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "grpc", Name: "calls_total",
			Help: "gRPC calls that have ended, by method and code."}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "perdure", Subsystem: "grpc", Name: "call_seconds",
			Help: "Duration of unary gRPC calls.", Buckets: prometheus.ExponentialBuckets(0.0002, 2, 18)}, []string{"method"}),
	}
	m.unread = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "perdure", Subsystem: "grpc", Name: "unread_total",
		Help: "gRPC calls ended before their request was read, by why."}, []string{"why"})
	m.closed = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "perdure", Name: "connections_closed_total",
		Help: "Connections of callers closed because there were too many or because they sent nothing, by port and why."}, []string{"port", "why"})
	workers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Name: "worker_streams",
		Help: "Worker streams attached to this node."}, func() float64 { return float64(d.Workers()) })
	for _, c := range []prometheus.Collector{m.calls, m.seconds, m.unread, m.closed, workers} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	m.start = m.of(perdurev1.Executions_Start_FullMethodName)
	m.signal = m.of(perdurev1.Executions_Signal_FullMethodName)
	m.result = m.of(perdurev1.Executions_Result_FullMethodName)
	m.createPromise = m.of(perdurev1.Promises_Create_FullMethodName)
	m.settlePromise = m.of(perdurev1.Promises_Settle_FullMethodName)
	return m, nil
}

func (m *serverMetrics) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := handler(ctx, req)
	m.calls.WithLabelValues(info.FullMethod, api.CodeOf(err).String()).Inc()
	m.seconds.WithLabelValues(info.FullMethod).Observe(time.Since(start).Seconds())
	return resp, err
}

func (m *serverMetrics) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	err := handler(srv, stream)
	m.calls.WithLabelValues(info.FullMethod, api.CodeOf(err).String()).Inc()
	return err
}
