import { describe, expect, it } from 'vitest';
import { parseWorkerMessage } from '../../../../src/export/jobs/worker-messages.ts';
import { parseExportSpec, type ExportSpec } from '../../../../src/export/jobs/export-spec.ts';

const spec: ExportSpec = {
  event: 'customEvents',
  selectors: ['eventId'],
  timezone: 'UTC',
  eventTime: { fromSeconds: 1, beforeSeconds: 2 },
  availableAt: {},
  idApp: ['1'],
  eventNameInvert: false,
  filters: { rooted: ['0'] },
};

describe('the spec of an export, as job.json keeps it', () => {
  it('The spec of an export is read from job.json as it was written', () => {
    expect(parseExportSpec(JSON.parse(JSON.stringify(spec)))).toEqual(spec);
    expect(parseExportSpec({ ...spec, localDates: { from: '2026-01-01', to: '2026-01-02' } })).toBeDefined();
  });

  it.each([
    ['null', null],
    ['a list', []],
    ['a spec without its event', { ...spec, event: undefined }],
    ['an unknown filter, which would select more if ignored', { ...spec, segments: ['7'] }],
    ['ids that are numbers', { ...spec, idApp: [1] }],
    ['a span of texts', { ...spec, eventTime: { fromSeconds: '1' } }],
    ['an invert that is a text', { ...spec, eventNameInvert: '1' }],
  ])('The spec of an export is refused when it is %s', (_what, value) => {
    expect(parseExportSpec(value)).toBeUndefined();
  });
});

describe('a message of an export worker', () => {
  it('A complete message of an export worker is parsed', () => {
    const file = { name: 'a.csv', rows: 1, bytes: 2, sha256: 'a'.repeat(64) };
    for (const message of [
      { kind: 'progress', percent: 3 },
      {
        kind: 'done',
        files: [file],
        basis: { version: 4, nextSinceVersion: '4-0123abcd', keptUntilSeconds: 5 },
        filesRead: 5,
      },
      { kind: 'failed', reason: 'disk', error: 'full' },
    ])
      expect(parseWorkerMessage(message)).toEqual(message);
  });

  it.each([
    null,
    {},
    { kind: 'toString' },
    { kind: 'progress' },
    {
      kind: 'done',
      files: [{}],
      basis: { version: 4, nextSinceVersion: '4-0123abcd', keptUntilSeconds: 5 },
      filesRead: 5,
    },
    { kind: 'done', files: [], basis: { version: 4 }, filesRead: 5 },
    { kind: 'failed', reason: 'mood', error: '' },
  ])('A message of an export worker is refused when it is %j', (value) => {
    expect(parseWorkerMessage(value)).toBeUndefined();
  });
});
