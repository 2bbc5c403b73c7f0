import { describe, expect, it } from 'vitest';
import { validateEvent } from '../../../src/datasets/schema-registry.ts';
import { parseJsonInteger, parseJsonNumber } from '../../../src/datasets/json-number.ts';

describe('the validator of an event', () => {
  it.each([
    [{ customEventName: '' }, '/customEventName', 'must NOT have fewer than 1 characters'],
    [{}, '/customEventName', 'is required'],
    [{ customEventName: 'a', idGender: 3 }, '/idGender', 'must be one of 0, 1, 2'],
    [{ customEventName: 'a', age: '129' }, '/age', 'must be <= 128'],
    [{ customEventName: 'a', age: null }, '/age', 'must be integer'],
    [
      { customEventName: 'a', hwid: '18446744073709551616' },
      '/hwid',
      'must be a string of digits from 1 to 18446744073709551615',
    ],
    [{ customEventName: 'a', sezamUserId: 2 ** 53 }, '/sezamUserId', 'must be an integer within its range'],
    [
      { customEventName: 'a', sezamUserId: '9223372036854775808' },
      '/sezamUserId',
      'must be an integer within its range',
    ],
    [
      { customEventName: 'a', customEventParams: { '': 'x' } },
      '/customEventParams',
      'has a name that must NOT have fewer than 1 characters',
    ],
    [{ customEventName: 'a', customEventParams: { 'a/b': 1 } }, '/customEventParams/a~1b', 'must be string'],
  ])('The validator names the field and the rule for %j', (fields, pointer, reason) => {
    expect(validateEvent('custom_event', { ...fields })).toMatchObject({ pointer, reason });
  });

  it('The validator turns a number written as a string into a number, in place', () => {
    const fields = {
      age: '33',
      eventTimestamp: '1.7e9',
      sezamUserId: '9.223372036854775807e18',
      hwid: '007',
      customUserId: '5',
    };
    expect(validateEvent('login', fields)).toBeUndefined();
    expect(fields).toEqual({
      age: 33,
      eventTimestamp: 1_700_000_000,
      sezamUserId: '9223372036854775807',
      hwid: '007',
      customUserId: '5',
    });
  });

  it('The validator counts lengths in code points', () => {
    expect(validateEvent('custom_event', { customEventName: '💰'.repeat(255) })).toBeUndefined();
    expect(validateEvent('custom_event', { customEventName: '💰'.repeat(256) })).toMatchObject({
      pointer: '/customEventName',
    });
  });

  it('The validator treats __proto__ as a name like any other', () => {
    const fields = JSON.parse('{"__proto__":{"customEventName":"a"},"customEventParams":{"__proto__":"x"}}') as Record<
      string,
      unknown
    >;
    expect(validateEvent('custom_event', fields)).toEqual({ pointer: '/customEventName', reason: 'is required' });
    expect(
      validateEvent('custom_event', {
        customEventName: 'a',
        ...(JSON.parse('{"customEventParams":{"__proto__":1}}') as object),
      }),
    ).toEqual({
      pointer: '/customEventParams/__proto__',
      reason: 'must be string',
      hint: 'write it in quotes',
    });
  });
});

describe('a number as a string', () => {
  it.each(['', ' 1', '1 ', '+1', '01', '1e', '1e2x', '0x10', 'NaN', 'Infinity', '.5', '5.', '１'])(
    'The string %j is not a number',
    (text) => {
      expect(parseJsonNumber(text)).toBeUndefined();
      expect(parseJsonInteger(text)).toBeUndefined();
    },
  );

  it.each([
    ['0', '0'],
    ['-0', '0'],
    ['12', '12'],
    ['-12', '-12'],
    ['1e3', '1000'],
    ['1.50e1', '15'],
    ['1200e-2', '12'],
    ['9223372036854775807', '9223372036854775807'],
    ['1.5', undefined],
    ['1e-1', undefined],
    ['1e999999999', undefined],
  ])('The string %j gives its exact digits', (text, digits) => {
    expect(parseJsonInteger(text)).toBe(digits);
  });
});
