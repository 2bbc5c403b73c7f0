import { describe, expect, it } from 'vitest';
import { renderEvent } from '../../../src/datasets/event-line.ts';
import { platforms, type EventKind, type Platform } from '../../../src/datasets/field-schema.ts';
import { renderEventsFast, createFastValueRenderer } from '../../../src/datasets/fast-event-renderer.ts';
import type { InputFields } from '../../../src/datasets/schema-registry.ts';
import { generateGameSessions } from '../../../src/demo/game-sessions.ts';

const plain = (fields: unknown, platform: Platform = 'web', kind: EventKind = 'custom_event') =>
  renderEventsFast(kind, platform, [fields]);
const membersOf = (members = ''): unknown => JSON.parse(`{${members.slice(1)}}`);
const event = { customEventName: 'a', customUserId: 'u' };

describe('events that are plainly valid', () => {
  it('Everyday events are plain, and get the same members as validated ones', () => {
    for (const made of generateGameSessions({ seed: 1, events: 200, until: 1_700_000_000, days: 1 })) {
      const [rendered] = plain(made)?.events ?? [];
      const judged = renderEvent('custom_event', 'web', { ...made });
      expect(rendered?.time).toBe(made.eventTimestamp);
      expect(membersOf(rendered?.members)).toEqual(membersOf(judged.members));
    }
  });

  it.each(platforms)('A default replaces a missing value, on %s', (platform) => {
    const [rendered] = plain(event, platform)?.events ?? [];
    const judged = renderEvent('custom_event', platform, event);
    expect(membersOf(rendered?.members)).toEqual(membersOf(judged.members));
    const [given] = plain({ ...event, connectionType: 2 }, platform)?.events ?? [];
    expect(membersOf(given?.members)).toMatchObject({ connection_type: 2 });
  });

  it('Parameters that no schema knows are counted, and are in no line', () => {
    const found = renderEventsFast('custom_event', 'web', [{ ...event, x: [1] }, event, { ...event, y: 1, z: null }]);
    expect(found?.unknownParameters).toBe(3);
    expect(found?.events.map(({ members }) => members)).not.toContainEqual(expect.stringMatching(/"[xyz]"/));
  });

  it('An empty user id counts as absent', () => {
    const [rendered] = plain({ customEventName: 'a', customUserId: '', lvid: 'l'.repeat(32) })?.events ?? [];
    expect(membersOf(rendered?.members)).not.toHaveProperty('custom_user_id');
  });

  it('Any text is written as JSON, also after another text was cached', () => {
    for (const text of ['"', '\\', '\n', '\u2028', '💰', 'ф', '"'])
      expect(membersOf(plain({ ...event, customEventName: text })?.events[0]?.members)).toMatchObject({
        custom_event_name: text,
      });
  });
});

describe('what is left to the schemas', () => {
  it.each<[string, unknown]>([
    ['no object', [event]],
    ['null', null],
    ['a required field that is missing', { customUserId: 'u' }],
    ['a number as text', { ...event, age: '33' }],
    ['a fraction', { ...event, age: 33.5 }],
    ['a number out of its range', { ...event, age: 129 }],
    ['a number outside of the list', { ...event, idGender: 3 }],
    ['null for a text', { ...event, ipv4: null }],
    ['a text that is too long', { ...event, ipv4: '1'.repeat(16) }],
    ['a text that is too short', { ...event, customEventName: '' }],
    ['a text whose characters are fewer than its units', { ...event, lvid: '💰'.repeat(16) }],
    ['a map with a number', { ...event, customEventParams: { level: 7 } }],
    ['a map with an empty name', { ...event, customEventParams: { '': 'x' } }],
    ['a map with an empty text', { ...event, customEventParams: { level: '' } }],
    ['a list for a map', { ...event, customEventParams: ['x'] }],
    ['a number of 64 bits', { ...event, sezamUserId: 7 }],
    ['exact digits', { ...event, hwid: '7' }],
  ])('An event with %s is not plain', (_what, fields) => {
    expect(plain(fields)).toBeUndefined();
  });

  it('One event that is not plain leaves its entire request to the schemas', () => {
    const values: InputFields[] = [event, { ...event, age: '33' }];
    expect(renderEventsFast('custom_event', 'web', values)).toBeUndefined();
  });

  it.each([
    { type: 'string', pattern: '^a' },
    { type: 'string', format: 'date' },
    { type: 'string', minLength: 1, const: 'x' },
    { type: 'integer', multipleOf: 2 },
    { type: 'integer', enum: [1], minimum: 0 },
    { type: 'string', enum: [1] },
    { type: 'number', minimum: 0 },
    { type: ['string', 'null'] },
    { type: 'object', additionalProperties: { type: 'string' } },
    { type: 'object', propertyNames: { pattern: '^a' }, additionalProperties: { type: 'string' } },
    { oneOf: [{ type: 'integer' }] },
  ])('No value is plain by unknown rules: %j', (rules) => {
    const schema = { description: '', 'x-column': 'c', 'x-column-type': 'VARCHAR' as const, ...rules };
    expect(createFastValueRenderer(schema as Parameters<typeof createFastValueRenderer>[0])).toBeUndefined();
  });
});
