import { describe, expect, it } from 'vitest';
import { parseRoleMessage, parseSupervisorMessage } from '../../../../src/runtime/processes/role-process.ts';

describe('a message between the supervisor and a role', () => {
  it.each([
    { type: 'ready' },
    { type: 'ready', port: 8080 },
    { type: 'failed', code: 'locked', message: 'in use' },
    { type: 'failed', code: 'disk', message: 'full', hint: 'Free some space.' },
    { type: 'report', facts: { problems: [] } },
    { type: 'metrics', metrics: [] },
  ])('A message of a role is read as it was sent: %j', (message) => {
    expect(parseRoleMessage(structuredClone(message))).toEqual(message);
  });

  it.each([
    null,
    'ready',
    [],
    {},
    { type: 'online' },
    { type: 'ready', port: '80' },
    { type: 'failed', code: 'nonsense', message: 'x' },
    { type: 'failed', code: 'toString', message: 'x' },
    { type: 'metrics', metrics: {} },
    { type: 'report', facts: null },
  ])('A message is refused when it is something else: %j', (value) => {
    expect(parseRoleMessage(value)).toBeUndefined();
  });

  it('A message of the supervisor is read as it was sent, and nothing else is', () => {
    expect(parseSupervisorMessage({ type: 'service', view: { ready: true, more: 1 } })).toEqual({
      type: 'service',
      view: { ready: true },
    });
    const draining = { type: 'service', view: { ready: false, draining: true } };
    expect(parseSupervisorMessage(draining)).toEqual(draining);
    for (const value of [
      null,
      {},
      { type: 'service' },
      { type: 'service', view: { ready: 1 } },
      { type: 'other', view: { ready: true } },
    ])
      expect(parseSupervisorMessage(value)).toBeUndefined();
  });
});
