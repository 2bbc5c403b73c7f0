import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { findNotices, noticeRules } from '../../../../src/lake/catalogue/notices.ts';
import type { Notice } from '../../../../src/lake/catalogue/catalogue-files.ts';
import { parameterTypes, typeColumn } from '../../../../src/lake/catalogue/parameter-types.ts';
import { openDuckdb } from '../../../../src/lake/sql/duckdb.ts';
import { sqlText } from '../../../../src/lake/sql/literals.ts';
import { testFolder } from '../../../helpers/folder.ts';

const dayMs = 86_400_000;
const dateOf = (n: number): string => new Date(Date.UTC(2026, 2, 1) + n * dayMs).toISOString().slice(0, 10);

/** Events of a name in the sealed file of a date, or those above its limit, with counts of each parameter. */
interface DayOfEvent {
  readonly idApp: number;
  readonly event: string | null;
  readonly day: number;
  readonly events: number;
  readonly parameters?: Readonly<Record<string, number>>;
}

async function openPack() {
  const duckdb = await openDuckdb({ memoryMb: 128, threads: 1 });
  onTestFinished(() => duckdb.close());
  const folder = testFolder();
  let packs = 0;
  async function write(days: readonly DayOfEvent[]): Promise<string> {
    const rows = days.flatMap(({ parameters = {}, ...of }) => [
      { ...of, parameter: null, seen: of.event === null ? 0 : of.events, text: 0 },
      ...Object.entries(parameters).map(([parameter, seen]) => ({ ...of, events: 0, parameter, seen, text: seen })),
    ]);
    const values = rows.map(
      ({ idApp, event, day, events, parameter, seen, text }) =>
        `(${[event, parameter].map((name) => (name === null ? 'NULL' : sqlText(name))).join(', ')}, ${idApp}, DATE ${sqlText(dateOf(day))}, ${events}, ${seen}, ${text}, 'file of ${day}')`,
    );
    const types = parameterTypes.map((type) => `${type === 'text' ? 'of_text' : 0}::BIGINT AS ${typeColumn(type)}`);
    packs += 1;
    const file = path.join(folder, `${packs}.parquet`);
    await duckdb.run(`COPY (SELECT event, parameter, id_app, date, events, seen, 0 AS more, key, ${types.join(', ')}
      FROM (VALUES ${values.join(', ')}) AS rows(event, parameter, id_app, date, events, seen, of_text, key)) TO ${sqlText(file)} (FORMAT parquet)`);
    return file;
  }
  /** Searches days in order. Returns the notices of each day, and all known notices at the end. */
  async function look(days: readonly DayOfEvent[], at: readonly number[]) {
    const file = await write(days);
    let known: readonly Notice[] = [];
    const found: string[] = [];
    for (const day of at) {
      const looked = await findNotices(duckdb, [file], known, { day: dateOf(day), nowMs: 0 });
      found.push(
        ...looked.found.map(({ kind, idApp, customEventName = '', parameter = '' }) =>
          `${day}: ${kind} ${idApp} ${customEventName} ${parameter}`.trim(),
        ),
      );
      known = [...looked.found, ...looked.known];
    }
    return { found, known };
  }
  return { look };
}

const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, n) => from + n);
const of = (event: string | null, from: number, to: number, events: number | ((day: number) => number), idApp = 1) =>
  range(from, to).map((day) => ({ idApp, event, day, events: typeof events === 'number' ? events : events(day) }));

/** Returns an event with another volume on the last of 41 days. */
const fall = (event: string, idApp: number, before: number, last: number) =>
  of(event, 0, 40, (day) => (day === 40 ? last : before), idApp);

const having = (names: readonly string[], count: number) => Object.fromEntries(names.map((name) => [name, count]));

describe('notices of the catalogue', () => {
  it('A volume that falls again after a recovery is noticed again, and one that stays low is not', async () => {
    const { look } = await openPack();
    const { found, known } = await look(
      [
        ...of('steady', 0, 70, 5000),
        ...of('twice', 0, 70, (day) => ([40, 41, 54].includes(day) ? 10 : 200)),
        ...of('low', 0, 70, (day) => (day < 40 ? 200 : 10)),
      ],
      range(39, 60),
    );
    expect(found.toSorted()).toEqual([
      '40: volume_fallen 1 low',
      '40: volume_fallen 1 twice',
      '54: volume_fallen 1 twice',
    ]);
    const newest = known.find(({ customEventName }) => customEventName === 'twice');
    expect(newest).toMatchObject({ date: dateOf(54), isResolved: true });
    expect(known.find(({ customEventName, date }) => customEventName === 'twice' && date === dateOf(40))).toMatchObject(
      {
        lastDate: dateOf(41),
        isResolved: true,
      },
    );
  });

  it('An event is noticed if it fell by more than its app, also if it pulls the app down', async () => {
    const { look } = await openPack();
    const { found } = await look(
      [
        // The app keeps 49 % of its events.
        ...fall('fell by 70 %', 1, 1000, 300),
        ...fall('fell by 41 %', 1, 1000, 590),
        ...fall('fell by 50 %', 1, 1000, 500),
        ...fall('fell by 42 %', 1, 1000, 580),
        // The app keeps 58 % of its events: one event is most of them.
        ...fall('drags', 2, 6000, 1800),
        ...fall('steady', 2, 4000, 4000),
        // The app has only this event, so its notice is the event's.
        ...fall('alone', 3, 1000, 300),
        ...fall('large', 4, 9800, 2900),
        ...fall('small', 4, 200, 200),
        // A growing app neither hides events nor raises the limit.
        ...fall('grows', 5, 1000, 9000),
        ...fall('half', 5, 1000, 490),
        ...fall('more than half', 5, 1000, 510),
      ],
      [40],
    );
    expect(found.toSorted()).toEqual([
      '40: volume_fallen 1',
      '40: volume_fallen 1 fell by 70 %',
      '40: volume_fallen 2 drags',
      '40: volume_fallen 3',
      '40: volume_fallen 4',
      '40: volume_fallen 4 large',
      '40: volume_fallen 5 half',
    ]);
  });

  it('An event that a full part does not name does not count as fallen', async () => {
    const { look } = await openPack();
    const names = (day: number) => of('one of many', day, day, 150);
    const { found } = await look(
      [
        ...of('large', 0, 39, 2000),
        ...range(0, 40).flatMap(names),
        ...of('named before', 0, 39, 140),
        // Its events of the last day are among the unnamed ones of their part.
        ...of(null, 40, 40, 9000),
      ],
      [40],
    );
    expect(found).toEqual(['40: volume_fallen 1 large']);
  });

  it('An app with many changes has a limited number of notices, and takes none from another app', async () => {
    const { look } = await openPack();
    const many = range(1, 150).map((n) => `p${n}`);
    const days = [
      ...of('wild', 0, 42, 900).map((one) => ({ ...one, parameters: one.day < 38 ? having(many, 900) : {} })),
      ...of('calm', 0, 42, 100, 2).map((one) => ({ ...one, parameters: one.day < 38 ? { level: 100 } : {} })),
    ];
    const { found } = await look(days, [40, 40, 40, 41, 42]);
    expect(found.filter((text) => text.includes(' 2 '))).toEqual(['40: parameter_lost 2 calm level']);
    expect(found.filter((text) => text.startsWith('40:') && text.includes(' 1 '))).toHaveLength(noticeRules.mostOfDay);
    expect(new Set(found.map((text) => text.slice(4))).size).toBe(found.length);
    expect(found.length).toBeLessThanOrEqual(noticeRules.mostOfApp + 1);
  });
});
