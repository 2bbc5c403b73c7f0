import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseUserAgent } from '../../../src/enrichment/enrichment.ts';
import { isWhole } from '../../helpers/in-turn.ts';

it.each([
  [
    'Mozilla/5.0 (iPhone; CPU iPhone OS 18_3_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.3.1 Mobile/15E148 Safari/604.1',
    {
      idOsTitle: 'iOS',
      idOsVersionTitle: '18.3.2',
      idManufacturerTitle: 'Apple',
      idDeviceModelTitle: 'iPhone',
      browser: 'Mobile Safari',
      browserVersion: '18.3.1',
    },
  ],
  [
    'Mozilla/5.0 (Linux; Android 12; SM-G970U) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/96.0.4664.61 Mobile Safari/537.36',
    {
      idOsTitle: 'Android',
      idOsVersionTitle: '12',
      idManufacturerTitle: 'Samsung',
      idDeviceModelTitle: 'SM-G970U',
      browser: 'Chrome',
      browserVersion: '96.0.4664.61',
    },
  ],
  [
    'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36',
    { idOsTitle: 'Linux', browser: 'Chrome', browserVersion: '120.0.0.0' },
  ],
  ['curl/8.5.0', {}],
  ['', {}],
  ['   ', {}],
])('The User-Agent %j has these fields and no others', (text, agent) => {
  expect(parseUserAgent(text)).toEqual(agent);
});

it('Only the first 500 characters of a User-Agent are read', () => {
  const firefox = 'Mozilla/5.0 (X11; Ubuntu; Linux i686; rv:109.0) Gecko/20100101 Firefox/115.0';
  expect(parseUserAgent(firefox).browser).toBe('Firefox');
  expect(parseUserAgent(`${'x'.repeat(500)} ${firefox}`)).toEqual({});
});

it('Any text is parsed without an error, into texts that a column takes', () => {
  const fragment = fc.constantFrom(
    'Mozilla/5.0 (',
    'Android ',
    'Windows NT ',
    'iPhone; ',
    'Build/',
    'SM-',
    '; ',
    '\uD83D',
    '\0',
  );
  const text = fc.array(fc.oneof(fragment, fc.string({ unit: 'binary', maxLength: 300 })), { maxLength: 20 });
  fc.assert(
    fc.property(text, (parts) => {
      for (const value of Object.values(parseUserAgent(parts.join('').slice(0, 2048))))
        expect(value.isWellFormed() && value !== '' && value.length <= 500).toBe(true);
    }),
    { numRuns: isWhole ? 100 : 30 },
  );
});
