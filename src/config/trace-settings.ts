/**
 * Variables of the OpenTelemetry specification that the service checks, for the parser (src/config.ts) and
 * docs/reference/settings.md. Their names have no prefix. The SDK reads them itself, and further ones.
 */
import { address, oneOf, setting, word } from './setting-kinds.ts';

const protocols = ['http/protobuf', 'http/json'] as const;

export const traceSettings = {
  endpoint: address('OTEL_EXPORTER_OTLP_ENDPOINT', {
    about: 'Address of an OpenTelemetry collector that receives traces, at `v1/traces` below it. Unset: no traces.',
  }),
  tracesEndpoint: address('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', {
    about: 'Full address for traces, if it differs.',
  }),
  protocol: oneOf('OTEL_EXPORTER_OTLP_PROTOCOL', protocols, {
    fallback: 'http/protobuf',
    about: 'Format of the export. gRPC is not supported: use the port of OTLP over HTTP, usually 4318.',
  }),
  sampler: oneOf(
    'OTEL_TRACES_SAMPLER',
    [
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
      'always_on',
      'always_off',
      'traceidratio',
    ],
    {
      fallback: 'parentbased_always_on',
      about: "Choice of the traced requests. `parentbased_...`: the client's decision counts if it sends one.",
    },
  ),
  samplerArgument: setting<number>({
    name: 'OTEL_TRACES_SAMPLER_ARG',
    values: '0 to 1',
    about: 'Share of the traced requests, for the samplers with a ratio.',
    fallback: 1,
    parse(given, refuse) {
      const ratio = /^(0|1|0?\.\d{1,9}|1\.0+)$/.test(given) ? Number(given) : Number.NaN;
      if (Number.isNaN(ratio)) refuse('must be a number from 0 to 1');
      return ratio;
    },
  }),
  serviceName: word('OTEL_SERVICE_NAME', {
    fallback: 'tributary',
    values: 'name',
    about: 'Name of the service in traces.',
  }),
  isDisabled: oneOf('OTEL_SDK_DISABLED', ['false', 'true'], {
    fallback: 'false',
    about: 'Whether traces are off although there is an address.',
  }),
} as const;
