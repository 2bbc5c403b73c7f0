import { expect, it } from 'vitest';
import { findBrokerClock } from '../../../src/stream/reader.ts';

const at = '2026-01-01T00:00:10.123456789Z';
const atMs = Date.UTC(2026, 0, 1, 0, 0, 10, 123);

/** A server of the cluster with the age of its last contact. */
const heard = (activeMs: number, changed: object = {}) => ({
  name: 'n',
  current: true,
  offline: false,
  active: activeMs * 1_000_000,
  lag: 0,
  ...changed,
});

it.each([
  ['one server', undefined, 5],
  ['one of several servers', [], 5],
  ['three servers, of which the nearer one counts', [heard(700), heard(200)], 205],
  ['three servers, of which one is away', [heard(9000, { offline: true, current: false }), heard(200)], 205],
  ['five servers, of which two others count', [heard(900), heard(100), heard(800), heard(300)], 305],
  ['two servers', [heard(400)], 405],
  ['a server that is isolated, and has not noticed yet', [heard(8000), heard(7000)], 7005],
])(
  'A stream on %s proves what was acknowledged before the last contact with a majority',
  (_what, replicas, beforeMs) => {
    const cluster = replicas === undefined ? {} : { cluster: { replicas } };
    expect(findBrokerClock({ ts: at, ...cluster }, 4.5)).toEqual({ fromMs: atMs - beforeMs, toMs: atMs });
  },
);

it('A server without contact to a majority, or without a time, proves nothing about acknowledged messages', () => {
  const never = heard(0, { current: false });
  expect(findBrokerClock({ ts: at, cluster: { replicas: [never, never] } }, 1)).toBeUndefined();
  expect(findBrokerClock({}, 1)).toBeUndefined();
});
