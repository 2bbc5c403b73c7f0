import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findUnknownSettings, parseConfig, pickSettings } from '../../src/config.ts';
import { exportSettings } from '../../src/export/export.ts';
import { testFolder } from '../helpers/folder.ts';

describe('settings', () => {
  it('Settings have their defaults with an empty environment', () => {
    const config = parseConfig({});
    expect(config).toMatchObject({
      host: '127.0.0.1',
      s2sPort: 8080,
      apiPort: 8081,
      flushAgeMs: 5000,
      sealAgeMs: 3_600_000,
      linkTtlSeconds: 86_400,
      maxExports: 10,
      singleFileMaxBytes: 10 * 1024 * 1024,
      clockOffsetSeconds: 0,
    });
    expect(config.quotaUser).toEqual([
      { limit: 10, windowMs: 1000 },
      { limit: 100, windowMs: 60_000 },
      { limit: 1000, windowMs: 3_600_000 },
    ]);
    expect(Object.isFrozen(config)).toBe(true);
  });

  it('The export stage gets its own settings, and not the password of the broker', () => {
    const config = parseConfig({ TRIBUTARY_NATS_URL: 'nats://service:hidden@127.0.0.1:4222' });
    expect(JSON.stringify(config)).toContain('hidden');
    const given = pickSettings(config, exportSettings);
    expect(Object.keys(given)).toEqual([...exportSettings]);
    expect(JSON.stringify(given)).not.toContain('hidden');
  });

  it('An empty variable counts as unset', () => {
    expect(parseConfig({ TRIBUTARY_S2S_PORT: '' }).s2sPort).toBe(8080);
  });

  it('The error names every wrong setting at once', () => {
    const bad = {
      TRIBUTARY_S2S_PORT: '70000',
      TRIBUTARY_FLUSH_AGE_MS: 'soon',
      TRIBUTARY_LOG_LEVEL: 'loud',
      TRIBUTARY_QUOTA_USER: '10/day',
      TRIBUTARY_PUBLIC_API_URL: 'example',
    };
    const names = Object.keys(bad);
    expect(() => parseConfig(bad)).toThrow(
      expect.objectContaining({
        code: 'config_invalid',
        message: expect.toSatisfy((message: string) => names.every((name) => message.includes(name))),
      }),
    );
  });

  it.each([
    ['TRIBUTARY_LINK_TTL_SECONDS', '604800', '604801'],
    ['TRIBUTARY_LINK_TTL_SECONDS', '1', '0'],
    ['TRIBUTARY_S2S_PORT', '65535', '-1'],
    ['TRIBUTARY_SINGLE_FILE_MAX_BYTES', '0', '-1'],
    ['TRIBUTARY_CLOCK_OFFSET_SECONDS', '-3600', '1.5'],
    ['TRIBUTARY_QUOTA_IP', 'off', 'none'],
    ['TRIBUTARY_ENRICH', 'off', 'no'],
    ['TRIBUTARY_NATS_URL', 'nats://10.0.0.1:4222', 'http://10.0.0.1'],
    ['TRIBUTARY_NATS_URL', 'nats://u:p@one:4222, nats://two:4222', 'nats://one:4222,tls://two:4222'],
  ])('%s accepts %s and refuses %s', (name, good, bad) => {
    expect(() => parseConfig({ [name]: good })).not.toThrow();
    expect(() => parseConfig({ [name]: bad })).toThrow(name);
  });

  it('A secret may be in a file, but not also in its variable', () => {
    const file = path.join(testFolder(), 'address');
    writeFileSync(file, 'nats://u:p@one\n');
    expect(parseConfig({ TRIBUTARY_NATS_URL_FILE: file }).natsUrl).toBe('nats://u:p@one');
    const both = { TRIBUTARY_NATS_URL_FILE: file, TRIBUTARY_NATS_URL: 'nats://two' };
    expect(() => parseConfig(both)).toThrow('must not be set together');
    expect(() => parseConfig({ TRIBUTARY_NATS_URL_FILE: `${file}.none` })).toThrow('TRIBUTARY_NATS_URL_FILE');
    expect(findUnknownSettings({ TRIBUTARY_NATS_URL_FILE: file })).toEqual([]);
  });

  it.each(['NATS_CREDENTIALS_FILE', 'NATS_CA_FILE', 'NATS_CERT_FILE', 'NATS_SYSTEM_URL'])(
    'TRIBUTARY_%s without a cluster is refused',
    (name) => {
      expect(() => parseConfig({ [`TRIBUTARY_${name}`]: 'nats://one' })).toThrow('needs TRIBUTARY_NATS_URL');
    },
  );

  it('Downloads from the bucket without reports in a bucket are refused', () => {
    const redirect = { TRIBUTARY_DOWNLOADS: 'redirect' };
    for (const place of [{}, { TRIBUTARY_LAKE_URL: 's3://one/lake' }])
      expect(() => parseConfig({ ...redirect, ...place })).toThrow('TRIBUTARY_DOWNLOADS=redirect needs');
    for (const name of ['STORAGE_URL', 'REPORTS_URL'])
      expect(parseConfig({ ...redirect, [`TRIBUTARY_${name}`]: 's3://one/two' }).downloads).toBe('redirect');
  });

  it('An error never shows the password of an address', () => {
    const bad = {
      TRIBUTARY_NATS_URL: 'nats://ann:hun#ter2@one:4222,nats://two',
      TRIBUTARY_PUBLIC_API_URL: 'ftp://ann:hunter2@host',
    };
    expect(() => parseConfig(bad)).toThrow(
      expect.objectContaining({ message: expect.not.stringMatching(/ann|hun|ter2/) }),
    );
  });

  it('The trailing slash of a public address is removed', () => {
    expect(parseConfig({ TRIBUTARY_PUBLIC_API_URL: 'https://reports.example.com/' }).publicApiUrl).toBe(
      'https://reports.example.com',
    );
  });

  it('A variable that only looks like a setting is reported with the setting that was probably meant', () => {
    const environment = {
      TRIBUTARY_FLUSH_AGE: '1',
      TRIBUTARY_S2SPORT: '1',
      TRIBUTARY_COLOUR: 'red',
      TRIBUTARY_S2S_PORT: '1',
      TRIBUTARY_CACHE_DIR: '/c',
      TRIBUTARY_TEST_SEED: '7',
      TRIBUTARY_CHAOS: 'long',
      PATH: '/bin',
    };
    expect(findUnknownSettings(environment)).toEqual([
      { variable: 'TRIBUTARY_FLUSH_AGE', probably: 'TRIBUTARY_FLUSH_AGE_MS' },
      { variable: 'TRIBUTARY_S2SPORT', probably: 'TRIBUTARY_S2S_PORT' },
      { variable: 'TRIBUTARY_COLOUR', probably: undefined },
    ]);
  });
});

describe('the variables of traces', () => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };

  it.each([
    ['no address', { OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc', OTEL_TRACES_SAMPLER: 'x' }, undefined],
    ['an empty address', { OTEL_EXPORTER_OTLP_ENDPOINT: '' }, undefined],
    ['a disabled SDK', { ...endpoint, OTEL_SDK_DISABLED: 'true', OTEL_TRACES_SAMPLER: 'x' }, undefined],
    ['an address', endpoint, { protocol: 'http/protobuf' }],
    ['a full address', { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://one/v1/traces' }, { protocol: 'http/protobuf' }],
    ['a format', { ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' }, { protocol: 'http/json' }],
  ])('With %s, traces are as specified', (_case, environment, expected) => {
    expect(parseConfig(environment).traceExport).toEqual(expected);
  });

  it.each([
    ['OTEL_EXPORTER_OTLP_ENDPOINT', '127.0.0.1:4318', 'must be an address'],
    ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'grpc://one', 'must be an address'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', 'must be one of http/protobuf, http/json'],
    ['OTEL_TRACES_SAMPLER', 'ratio', 'must be one of parentbased_always_on'],
    ['OTEL_TRACES_SAMPLER_ARG', '1.5', 'must be a number from 0 to 1'],
    ['OTEL_TRACES_SAMPLER_ARG', '1%', 'must be a number from 0 to 1'],
  ])('%s=%s is refused at the start', (name, value, rule) => {
    expect(() => parseConfig({ ...endpoint, [name]: value })).toThrow(`${name} ${rule}`);
  });

  it.each(['0', '1', '0.01', '.5', '1.0'])('A share of %s is taken', (share) => {
    expect(() => parseConfig({ ...endpoint, OTEL_TRACES_SAMPLER_ARG: share })).not.toThrow();
  });
});
