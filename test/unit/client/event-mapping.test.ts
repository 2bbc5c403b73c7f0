import { describe, expect, it } from 'vitest';
import { createMapping } from '../../../src/client/event-mapping.ts';
import { createIsField } from '../../../src/client/csv-event.ts';
import { isRecord } from '../../../src/runtime/files/checksummed-json.ts';

/** Maps one line of JSON; returns the event as text, or the reason. */
function map(line: string, pairs: Readonly<Record<string, string>> = {}, timeFormat = 'auto'): string {
  const mapping = createMapping({
    map: new Map(Object.entries(pairs)),
    timeFormat,
    isField: createIsField('customEvent'),
  });
  const value: unknown = JSON.parse(line);
  const mapped = mapping.mapJson(line, isRecord(value) ? value : {});
  return 'json' in mapped ? mapped.json : mapped.reason;
}

describe('the mapping of an event', () => {
  it.each([
    '{"eventTimestamp": 1425040205, "a":1.50}',
    '{"eventTimestamp":"1425040205"}',
    '{"eventTimestamp":"soon"}',
    '{ "a" : 1 }',
  ])('A line that needs no change keeps its bytes: %s', (line) => {
    expect(map(line)).toBe(line);
  });

  it('A time of another form becomes Unix seconds, and long numbers stay exact', () => {
    expect(map('{"eventTimestamp":1425040205123,"hwid":12345678901234567890,"age":20}')).toBe(
      '{"eventTimestamp":1425040205,"hwid":"12345678901234567890","age":20}',
    );
    expect(map('{"eventTimestamp":"2015-02-27T12:30:05Z"}')).toBe('{"eventTimestamp":1425040205}');
    expect(map('{"eventTimestamp":"27.02.2015"}', {}, '%d.%m.%Y')).toBe('{"eventTimestamp":1424995200}');
    expect(map('{"eventTimestamp":"2015-02-27"}', {}, 'ms')).toBe('eventTimestamp is not a time of the form ms');
  });

  it('Members of nested objects move to fields, and what is left of an unknown object is dropped', () => {
    const line =
      '{"e":{"user":{"id":"u-1"},"name":"buy","v":2},"ts":"2015-02-27","props":{"price":1.50,"new":true,"none":null,"text":"a \\"1\\""},"seq":17}';
    const pairs = {
      'e.user.id': 'customUserId',
      'e.name': 'customEventName',
      ts: 'eventTimestamp',
      props: 'customEventParams',
      seq: 'customEventParams.seq',
    };
    expect(JSON.parse(map(line, pairs))).toEqual({
      customUserId: 'u-1',
      customEventName: 'buy',
      eventTimestamp: 1_424_995_200,
      customEventParams: { price: '1.50', new: 'true', text: 'a "1"', seq: '17' },
    });
  });

  it('All other members become parameters, or are dropped', () => {
    const line = '{"customUserId":"u","a.b":1,"c":null,"age":20,"__proto__":"p"}';
    expect(JSON.parse(map(line, { '*': 'customEventParams.*' }))).toEqual({
      customUserId: 'u',
      age: '20',
      customEventParams: JSON.parse('{"a.b":"1","__proto__":"p"}') as unknown,
    });
    expect(map(line, { '*': '' })).toBe('{"customUserId":"u","age":"20"}');
    expect(map(line, { customUserId: '' })).toBe('{"a.b":"1","age":"20","__proto__":"p"}');
  });

  it('A field that two members map to is an error', () => {
    expect(map('{"customUserId":"a","user":"b"}', { user: 'customUserId' })).toMatch(/^has customUserId twice/);
    expect(map('{"customEventParams":{"a":"1"},"b":"2"}', { b: 'customEventParams.a' })).toMatch(
      /^has customEventParams\.a twice/,
    );
  });
});
