import { describe, expect, it } from 'vitest';
import { formatLiveEvent, formatDropped, formatLiveRefusal, tailHead } from '../../../src/cli/tail.ts';

const at = Date.parse('2026-03-01T12:00:05Z');
const own = { event_id: 'x', id_app: 1, event_time: 1, received_at: at };
const time = new Date(at).toTimeString().slice(0, 8);

describe('the lines of tail on a terminal', () => {
  it('An event is a line of time, kind, subject and fields, in fixed columns', () => {
    const custom = {
      ...own,
      kind: 'custom_event',
      custom_user_id: 'u-1',
      custom_event_name: 'level_up',
      custom_event_params: { level: '3' },
      age: 30,
    };
    const login = { ...own, kind: 'login', lvid: '5', custom_user_id: '' };
    expect([
      tailHead(100),
      formatLiveEvent(JSON.stringify(custom), 100),
      formatLiveEvent(JSON.stringify(login), 100),
    ]).toEqual([
      `time      kind          subject${' '.repeat(19)}fields`,
      `${time}  custom_event  u-1${' '.repeat(23)}level_up  level=3  age=30`,
      `${time}  login         5${' '.repeat(25)}custom_user_id=`,
    ]);
  });

  it('A rejected request shows its status, the field, the hint, and the number of equal requests', () => {
    const refusal = {
      time: new Date(at).toISOString(),
      method: 'login',
      status: 400,
      error: 'Bad Request',
      detail: '/age must be integer',
      errors: [{ pointer: '/age', reason: 'must be integer', hint: 'a number' }],
      requests: 8,
    };
    expect(formatLiveRefusal(JSON.stringify(refusal), 120)).toBe(
      `${time}  REFUSED       login 400${' '.repeat(17)}/age must be integer (a number) (8 requests alike)`,
    );
    expect(formatDropped(3, 0)).toBe('    ... 3 more events');
    expect(formatDropped(3, 2)).toBe('    ... 3 more events, 2 more refusals');
  });

  it('A line fits the terminal, and cannot change the surrounding output', () => {
    const hostile = { ...own, kind: 'login', custom_user_id: '\u001b[2J\u202e'.repeat(20), note: 'x'.repeat(500) };
    for (const line of [
      formatLiveEvent(JSON.stringify(hostile), 60),
      formatLiveEvent('no json', 60),
      formatLiveRefusal('{"a":1}', 60),
    ]) {
      expect(line.length).toBeLessThanOrEqual(60);
      expect(line).toMatch(/^[\x20-\x7e…]*$/);
    }
  });
});
