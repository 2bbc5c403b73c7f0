import path from 'node:path';
import type { StreamConfig, StreamInfo } from '@nats-io/jetstream';
import { expect, it } from 'vitest';
import { claimedSubject, keepClaim, renderMetadata, type Claim } from '../../../src/stream/claim.ts';
import { evaluateStream } from '../../../src/stream/publish-gate.ts';
import { wantedSettings } from '../../../src/stream/stream-admin.ts';
import { testFolder } from '../../helpers/folder.ts';

const own: Claim = { lake: 'lake-1', token: 't2', generation: 2 };
const place = { host: 'h', folder: '/data', fingerprint: 'f' };

/** Evaluates a stream with safe settings, some changes and this metadata, by the claim of the data folder. */
async function evaluate(metadata: Record<string, string>, changes: Partial<StreamConfig> = {}) {
  const claimFile = path.join(testFolder(), 'claim.json');
  await keepClaim(claimFile, own);
  const settings = wantedSettings({ subject: claimedSubject('EVENTS', own.token), maxBytes: 0 });
  const config = { ...settings, storage: 'file', metadata, ...changes };
  return evaluateStream({ created: '2026-01-01T00:00:00Z', config } as unknown as StreamInfo, 'EVENTS', claimFile);
}

it('A stream with safe settings and the current claim is open', async () => {
  expect(await evaluate(renderMetadata({ ...own, place }, {}))).toMatchObject({ kind: 'open' });
});

it.each([
  ['without a claim', {}],
  ['with an earlier claim', renderMetadata({ ...own, generation: 1, token: 't1', place }, {})],
])('A stream %s is reported as not claimed, not as one with unsafe settings', async (_case, metadata) => {
  expect(await evaluate(metadata)).toMatchObject({
    kind: 'shut',
    problem: {
      code: 'stream_unsafe',
      message: 'the stream EVENTS does not have the current claim of this service; imports are rejected',
    },
  });
});

it('An unsafe setting is reported, also without a claim', async () => {
  expect(await evaluate({}, { no_ack: true })).toMatchObject({
    kind: 'shut',
    problem: { code: 'stream_unsafe', message: expect.stringContaining('imports are rejected: no_ack is true') },
  });
});
