import stringWidth from 'string-width';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  renderFields,
  renderTable,
  cutText,
  padText,
  escapeText,
  formatBytes,
  formatTime,
  formatValue,
} from '../../../src/cli/human-output.ts';
import { defineCommand, type CommandContext } from '../../../src/cli/command.ts';
import { runCommandHere } from '../../helpers/run-command.ts';

const never = new AbortController().signal;

interface Shown {
  readonly printed: string[];
  readonly noted: string[];
  readonly answers: unknown[];
}

/** Runs a verb that prints these values, on a screen or in a pipe. */
async function show(values: readonly unknown[], words: string[], columns?: number, isList = true): Promise<Shown> {
  const shown: Shown = { printed: [], noted: [], answers: [] };
  const command = defineCommand({
    name: 'x',
    summary: 'answer',
    isList,
    run(_given, { printResult, printMessage }) {
      for (const value of values) {
        if (value instanceof Error) return Promise.reject(value);
        if (typeof value === 'string') printMessage(value);
        else printResult(value);
      }
      return Promise.resolve();
    },
  });
  const context: CommandContext = {
    environment: {},
    entry: '',
    printResult: (value) => void shown.answers.push(value),
    print: (line) => void shown.printed.push(line),
    printMessage: (line) => void shown.noted.push(line),
    ...(columns === undefined ? {} : { screen: { columns } }),
    stop: never,
    force: never,
  };
  await runCommandHere(command, words, context).catch((error: unknown) => shown.noted.push(String(error)));
  return shown;
}

describe('a value on a terminal', () => {
  it.each([
    ['a number has separators', 'rows', 1234567, '1,234,567'],
    ['a number above the safe integers is exact', 'hwid', 18446744073709551615n, '18,446,744,073,709,551,615'],
    ['a number that is a name has none', 'idApp', 12345, '12345'],
    ['bytes have a unit', 'sizeBytes', 12_900_000, '12.3 MiB'],
    ['bytes that were added have a unit', 'bytesAdded', 512, '512 B'],
    ['a span of milliseconds is one of seconds', 'lagMs', 1500, '1.5 s'],
    ['yes and no are words', 'ok', false, 'no'],
    ['nothing is a dash', 'title', null, '-'],
    ['a list has commas', 'names', ['a', 'b'], 'a, b'],
    ['an object has its fields', 'token', { prefix: 'ab', uses: 1000 }, 'prefix ab, uses 1,000'],
    ['digits that are not a time of the API stay', 'sdkKey', '1795491508', '1795491508'],
    ['a text that is nearly a time stays', 'day', '2026-03-01', '2026-03-01'],
  ])('A value on a terminal: %s', (_rule, name, value, text) => {
    expect(formatValue(value, name)).toBe(text);
  });

  it('A value on a terminal cannot change the surrounding output', () => {
    const hostile = 'a\u001b[2J\u009b31m\u202eb\u2028c\nd\te\u0000\ud800';
    const shown = escapeText(hostile);
    expect(shown).toBe('a\\u{1b}[2J\\u{9b}31m\\u{202e}b\\u{2028}c\\nd\\te\\u{0}\\u{d800}');
    for (const line of [
      ...renderTable([{ [hostile]: hostile }], 200),
      ...renderFields({ [hostile]: { [hostile]: [hostile] } }, 200),
    ])
      expect(line).toMatch(/^[ -~]*$/);
    expect(escapeText('👩‍💻 é')).toBe('👩‍💻 é');
  });

  it('A size has the unit with one to three digits before the point', () => {
    expect([0, 1023, 1024, 1024 ** 2 * 150, 1024 ** 4].map(formatBytes)).toEqual([
      '0 B',
      '1023 B',
      '1.0 KiB',
      '150 MiB',
      '1.0 TiB',
    ]);
  });

  it('A text is measured and cut by its width in columns', () => {
    expect(['abc', '日本', 'e\u0301', '👩‍💻'].map((text) => padText(text, 5))).toEqual([
      'abc  ',
      '日本 ',
      'e\u0301    ',
      '👩‍💻   ',
    ]);
    expect(cutText('日本語', 5)).toBe('日本…');
    expect(cutText('日本語', 6)).toBe('日本語');
  });
});

describe('a time on a terminal', () => {
  beforeAll(() => {
    const before = process.env['TZ'];
    process.env['TZ'] = 'Europe/Berlin';
    return () => {
      if (before === undefined) delete process.env['TZ'];
      else process.env['TZ'] = before;
    };
  });

  it('A time on a terminal is local time with the time zone', () => {
    expect(formatValue('1782907200', 'timestampCreated')).toBe(formatTime(1_782_907_200_000));
    expect(formatTime(Date.parse('2026-07-01T12:00:00Z'))).toMatch(/^2026-07-01 \d\d:00:00 \S+$/);
    expect(formatValue('2026-01-01T12:00:00.250Z', 'at')).toMatch(/^2026-01-01 \d\d:00:00 \S+$/);
    expect(formatValue(Date.parse('2026-01-01T12:00:00Z'), 'forgetAtMs')).toMatch(/^2026-01-01 /);
  });
});

describe('a table of answers', () => {
  const rows = [
    { idApp: '1', title: 'A shop with a rather long name', rows: 1234, at: '2026-01-01T12:00:00Z' },
    { idApp: '20', title: '日本', rows: 5, at: '2026-01-01T12:00:00Z' },
  ];

  it('A table of answers has a head and one line per row, with numbers right-aligned', () => {
    const lines = renderTable(rows, 200);
    expect(lines[0]).toMatch(/^idApp {2}title {28}rows {2}at$/);
    expect(lines[1]).toMatch(/^1 {6}A shop with a rather long name {2}1,234 {2}2026-01-01 /);
    expect(lines[2]).toMatch(/^20 {5}日本 +5 {2}2026-01-01 /);
  });

  it('A table of answers is never wider than the screen: it cuts texts first, then drops and names the last columns', () => {
    for (let columns = 200; columns >= 8; columns -= 1) {
      const lines = renderTable(rows, columns);
      for (const line of lines) expect(stringWidth(line), `${columns}: ${line}`).toBeLessThanOrEqual(columns);
      // A time is never cut.
      expect(lines[1], String(columns)).toMatch(/^1 .*2026-01-01 \d\d:\d\d:\d\d \S+$|^[^:]*$/);
    }
    expect(renderTable(rows, 30).at(-1)).toBe('(not shown: at; --json has al…');
  });

  it('A list of answers is one table per kind on a terminal, and JSON in a pipe or with --json', async () => {
    const values = [...rows, 'so far', { notice: { code: 'x' } }, { notice: { code: 'y' } }];
    const { printed, noted, answers } = await show(values, [], 100);
    expect(answers).toEqual([]);
    expect(noted).toEqual(['so far']);
    expect(printed.map((line) => line.split(/ {2,}/)[0])).toEqual(['idApp', '1', '20', '', 'notice', 'code', 'x', 'y']);
    for (const piped of [await show(values, [], undefined), await show(values, ['--json'], 100)])
      expect(piped).toEqual({
        printed: [],
        noted: ['so far'],
        answers: [...rows, { notice: { code: 'x' } }, { notice: { code: 'y' } }],
      });
  });

  it('An empty list of answers prints none, and rows before an error are printed', async () => {
    expect(await show([], [], 80)).toMatchObject({ printed: [], noted: ['none'] });
    expect(await show([{ a: 1 }, new Error('away')], [], 80)).toMatchObject({
      printed: ['a', '1'],
      noted: ['Error: away'],
    });
    expect(await show([new Error('away')], [], 80)).toMatchObject({ printed: [], noted: ['Error: away'] });
  });
});

describe('the fields of an answer', () => {
  it('The fields of an answer are printed at once, with nested fields indented', async () => {
    const { printed } = await show(
      [{ ok: true, lake: { rows: 2000, bytes: 2048 }, groups: [{ kind: 'login', rows: 1 }], problems: [], left: {} }],
      [],
      80,
      false,
    );
    expect(printed).toEqual([
      'ok        yes',
      'lake',
      '  rows   2,000',
      '  bytes  2.0 KiB',
      'groups',
      '  kind   rows',
      '  login     1',
      'problems  none',
      'left      none',
    ]);
    expect(
      renderFields(
        {
          services: [
            { pid: 1, processes: [{ name: 'a' }, { name: 'b' }] },
            { pid: 2, facts: {} },
          ],
        },
        80,
      ),
    ).toEqual(['services', '  pid  1', '  processes', '    name', '    a', '    b', '', '  pid    2', '  facts  none']);
  });

  it('A sentence is wrapped and never cut', () => {
    const message = 'the folder was taken from under the running service: it was moved, removed or replaced';
    const lines = renderFields({ problems: [{ code: 'data_folder_replaced', message }] }, 50);
    expect(lines).toEqual([
      'problems',
      '  code     data_folder_replaced',
      '  message  the folder was taken from under the',
      '           running service: it was moved, removed',
      '           or replaced',
    ]);
  });
});
