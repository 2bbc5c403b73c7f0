import { describe, expect, it } from 'vitest';
import { parseLine, renderCanonicalInput } from '../../../src/datasets/event-line.ts';
import { renderLine, type SenderContext } from '../../helpers/render-line.ts';

const context: SenderContext = {
  kind: 'custom_event',
  idApp: 7,
  platform: 'web',
  receivedAtMs: 1_700_000_000_999,
  ids: (index) => `id-${index}`,
};
const render = (fields: Record<string, unknown>, more: Partial<SenderContext> = {}): Record<string, unknown> =>
  JSON.parse(renderLine({ ...context, ...more }, fields, 0)) as Record<string, unknown>;

describe('the line of an event', () => {
  it('The line of an event has user, kind and time, under the names of the columns', () => {
    expect(render({ customEventName: 'level "up"', eventTimestamp: 5 })).toMatchObject({
      event_id: 'id-0',
      kind: 'custom_event',
      id_app: 7,
      event_time: 5,
      received_at: 1_700_000_000_999,
      custom_event_name: 'level "up"',
    });
  });

  it('The line of an event has the second of its receipt if the client sends no time', () => {
    expect(render({ customEventName: 'a' })['event_time']).toBe(1_700_000_000);
  });

  it('The line of an event has known fields only, and ends with a line break', () => {
    expect(renderLine(context, { customEventName: 'a', nobodyKnowsThis: 1 }, 0)).toMatch(/^[^\n]*\}\n$/);
    expect(Object.values(render({ customEventName: 'a', nobodyKnowsThis: 'x1y2' }))).not.toContain('x1y2');
  });

  it('The line of an event omits an empty user id', () => {
    expect(render({ customEventName: 'a', customUserId: '' })).not.toHaveProperty('custom_user_id');
    expect(render({ customEventName: 'a', customUserId: 'u' })).toHaveProperty('custom_user_id', 'u');
  });

  it('The line of an event keeps all digits of 64-bit values', () => {
    expect(render({ customEventName: 'a', sezamUserId: '009223372036854775807' })['sezam_user_id']).toBe(
      '9223372036854775807',
    );
  });
});

describe('the canonical text of an event', () => {
  it('The canonical text of an event does not depend on the order and notation of its fields', () => {
    const one = renderCanonicalInput('custom_event', 'web', {
      customEventName: 'a',
      customEventParams: { x: '1', y: '2' },
      hwid: '07',
    });
    const two = renderCanonicalInput('custom_event', 'web', {
      hwid: 7,
      customEventParams: { y: '2', x: '1' },
      customEventName: 'a',
    });
    expect(two).toBe(one);
  });

  it('The canonical text of an event differs if a value, the time or the kind differs', () => {
    const texts = [
      renderCanonicalInput('custom_event', 'web', { customEventName: 'a' }),
      renderCanonicalInput('custom_event', 'web', { customEventName: 'b' }),
      renderCanonicalInput('custom_event', 'web', { customEventName: 'a', eventTimestamp: 1 }),
      renderCanonicalInput('login', 'web', {}),
    ];
    expect(new Set(texts).size).toBe(texts.length);
  });
});

describe('a parsed line', () => {
  it('A parsed line has its known members that are not null', () => {
    const read = parseLine(Buffer.from('{"event_id":"a","id_app":1,"unknown":2,"custom_user_id":null}'));
    expect(read).toEqual({ text: '{"event_id":"a","id_app":1}' });
  });

  it.each([
    ['bytes that are not UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), 'bad_json'],
    ['half a line', Buffer.from('{"event_id":'), 'bad_json'],
    ['a list', Buffer.from('[1]'), 'bad_json'],
    ['a fraction', Buffer.from('{"id_app":1.5}'), 'bad_value'],
    ['an integer that lost digits', Buffer.from('{"id_app":9007199254740993}'), 'bad_value'],
    ['a truth', Buffer.from('{"id_app":true}'), 'bad_value'],
    ['half a surrogate pair', Buffer.from(String.raw`{"custom_user_id":"\ud800"}`), 'bad_value'],
    ['parameters that are not texts', Buffer.from('{"custom_event_params":{"a":1}}'), 'bad_value'],
  ])('A line is refused for %s', (_what, line, reason) => {
    expect(parseLine(line)).toEqual({ reason });
  });
});
