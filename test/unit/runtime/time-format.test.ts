import { describe, expect, it } from 'vitest';
import { createTimeReader } from '../../../src/runtime/time-format.ts';

const read = (format: string, text: string): number | undefined => createTimeReader(format)?.(text);
const noon = Date.UTC(2015, 1, 27, 12, 30, 5) / 1000;

describe('the forms of time', () => {
  it.each([
    ['auto', `${noon}`, noon],
    ['auto', `${noon}.999`, noon],
    ['auto', `${noon}999`, noon],
    ['auto', `${noon}999999`, noon],
    ['auto', `${noon}999999999`, noon],
    ['auto', '2015-02-27T12:30:05Z', noon],
    ['auto', '2015-02-27 12:30:05', noon],
    ['iso', '2015-02-27T12:30:05.999+00:00', noon],
    ['iso', '2015-02-27 15:30:05,5 +0300', noon],
    ['iso', '2015-02-27T06:00:05-06:30', noon],
    ['iso', '2015-02-27 12:30:05 UTC', noon],
    ['iso', '2015-02-27', Date.UTC(2015, 1, 27) / 1000],
    ['ms', `${noon}000`, noon],
    ['s', '7', 7],
    ['%d.%m.%Y %H:%M:%S', '27.02.2015 12:30:05', noon],
    ['%m/%d/%y %I:%M:%S %p', '2/27/15 12:30:05 PM', noon],
    ['%d %b %Y %H:%M:%S.%f %z', '27 Feb 2015 15:30:05.123 +03:00', noon],
  ])('%s reads %s', (format, text, seconds) => {
    expect(read(format, text)).toBe(seconds);
  });

  it.each([
    ['auto', ''],
    ['auto', 'yesterday'],
    ['auto', '-5'],
    ['iso', '2015-02-30'],
    ['iso', '2015-02-27T25:00'],
    ['iso', `${noon}`],
    ['ms', '2015-02-27'],
    ['%d.%m.%Y', '31.04.2015'],
    ['%d.%m.%Y', '27-02-2015'],
    ['%d %b %Y', '27 Foo 2015'],
    ['%d.%m.%Y %I %p', '27.02.2015 13 PM'],
    ['%d.%m.%Y %I %p', '27.02.2015 0 AM'],
  ])('%s does not read %j', (format, text) => {
    expect(read(format, text)).toBeUndefined();
  });

  it.each(['', 'minutes', '%H:%M', '%Y-%m', '%Y-%m-%d %Q', '%d.%d.%m.%Y', '%Y-%m-%d %I:%M', '%Y-%m-%d %H:%M %p'])(
    '%j is not a form of time',
    (format) => {
      expect(createTimeReader(format)).toBeUndefined();
    },
  );
});
