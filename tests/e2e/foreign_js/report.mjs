// A trainer that knows OpenTelemetry's JavaScript SDK and nothing of Overwatch: one policy update in three
// signals. usage: node report.mjs ENDPOINT json|protobuf cumulative|delta KL
import { SeverityNumber } from "@opentelemetry/api-logs";
import { OTLPLogExporter as JsonLogs } from "@opentelemetry/exporter-logs-otlp-http";
import { OTLPLogExporter as ProtobufLogs } from "@opentelemetry/exporter-logs-otlp-proto";
import { AggregationTemporalityPreference, OTLPMetricExporter as JsonMetrics } from "@opentelemetry/exporter-metrics-otlp-http";
import { OTLPMetricExporter as ProtobufMetrics } from "@opentelemetry/exporter-metrics-otlp-proto";
import { OTLPTraceExporter as JsonSpans } from "@opentelemetry/exporter-trace-otlp-http";
import { OTLPTraceExporter as ProtobufSpans } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchLogRecordProcessor, LoggerProvider } from "@opentelemetry/sdk-logs";
import { MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";

const [endpoint, encoding, temporality, kl] = process.argv.slice(2);
const exporters = {
  json: { logs: JsonLogs, metrics: JsonMetrics, spans: JsonSpans },
  protobuf: { logs: ProtobufLogs, metrics: ProtobufMetrics, spans: ProtobufSpans },
}[encoding];
const temporalityPreference = {
  cumulative: AggregationTemporalityPreference.CUMULATIVE,
  delta: AggregationTemporalityPreference.DELTA,
}[temporality];
const resource = resourceFromAttributes({
  "rl.run.id": `js-${encoding}-${temporality}`,
  "rl.algorithm": "ppo",
  "service.name": "foreign-js",
  "service.instance.id": "one",
});

const meters = new MeterProvider({
  resource,
  readers: [
    new PeriodicExportingMetricReader({
      exporter: new exporters.metrics({ url: `${endpoint}/v1/metrics`, temporalityPreference }),
      exportIntervalMillis: 3_600_000,
    }),
  ],
});
const tracers = new BasicTracerProvider({
  resource,
  spanProcessors: [new BatchSpanProcessor(new exporters.spans({ url: `${endpoint}/v1/traces` }))],
});
const loggers = new LoggerProvider({
  resource,
  processors: [
    new BatchLogRecordProcessor({ exporter: new exporters.logs({ url: `${endpoint}/v1/logs` }) }),
  ],
});

const meter = meters.getMeter("trainer");
meter.createGauge("train/approx_kl").record(Number(kl));
const steps = meter.createCounter("overwatch.run.steps");
for (const taken of [300, 40, 2]) {
  steps.add(taken);
  await meters.forceFlush();
}
tracers.getTracer("trainer").startSpan("rl.train").end();
loggers.getLogger("trainer").emit({
  severityNumber: SeverityNumber.WARN,
  body: "shard 7 is slow",
  attributes: { "overwatch.env.id": 3, ratio: 0.5, tags: ["a", "b"], deep: { of: { it: true } } },
});
await Promise.all([meters.shutdown(), tracers.shutdown(), loggers.shutdown()]);
