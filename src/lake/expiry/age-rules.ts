/** Age limits of rows: how many days each app and kind of event is kept, and the dates that follow from a day. */
import { events, importDatasets, type Dataset } from '../../datasets/dataset.ts';
import { readEventHead } from '../../datasets/event-line.ts';
import type { FailedEvent } from '../files/failed-events.ts';
import { sqlText } from '../sql/literals.ts';

/** Own limits of an app, days; 0: no limit. */
interface AppAgeRule {
  readonly idApp: number;
  readonly days?: number | undefined;
  /** By kind of event; for rows of other datasets, by the name of their table. */
  readonly kinds?: Readonly<Record<string, number>> | undefined;
}

export interface AgeRules {
  /** Limit of apps without own limits, days; undefined: none. */
  readonly defaultDays: number | undefined;
  /** All known apps, removed ones included. */
  readonly apps: readonly AppAgeRule[];
}

/** Returns the kinds of a table's rows for age limits: only those of the events table have a column for it. */
export const kindsOf = (dataset: Dataset): readonly string[] => (dataset === events ? dataset.kinds : [dataset.table]);

const dayMs = 86_400_000;

export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
export const msOfDay = (day: string): number => Date.parse(`${day}T00:00:00Z`);

const isLimit = (days: number | undefined): boolean => (days ?? 0) > 0;

/** Reports whether any row has an age limit. */
export function hasAgeLimits({ defaultDays, apps }: AgeRules): boolean {
  return isLimit(defaultDays) || apps.some(({ days, kinds = {} }) => [days, ...Object.values(kinds)].some(isLimit));
}

/** First dates (UTC) that are kept on a day: rows with an earlier `event_time` are expired. */
export interface Cutoffs {
  readonly day: string;
  readonly kinds: readonly string[];
  readonly rules: AgeRules;
  /** Apps with own limits. */
  readonly ownApps: readonly number[];
  /** The latest of all first kept dates, Unix ms. */
  readonly latestMs: number;
  /** Returns the start of the first kept date, Unix ms; -Infinity without a limit. `idApp` undefined: an app without own limits. */
  readonly findMs: (idApp: number | undefined, kind: string) => number;
}

/** `kinds`: those of the table's rows; a table without the column `kind` has its own name as the only one. */
export function createCutoffs(rules: AgeRules, day: string, kinds: readonly string[]): Cutoffs {
  const ofApps = rules.apps.filter((rule) => rule.days !== undefined || rule.kinds !== undefined);
  const own = new Map(ofApps.map((rule) => [rule.idApp, rule]));
  const findMs = (idApp: number | undefined, kind: string): number => {
    const rule = idApp === undefined ? undefined : own.get(idApp);
    const days = rule?.kinds?.[kind] ?? rule?.days ?? rules.defaultDays ?? 0;
    return days === 0 ? -Infinity : msOfDay(day) - days * dayMs;
  };
  const ownApps = [...own.keys()];
  let latestMs = -Infinity;
  for (const idApp of [undefined, ...ownApps])
    for (const kind of kinds) latestMs = Math.max(latestMs, findMs(idApp, kind));
  return { day, kinds, rules, ownApps, latestMs, findMs };
}

const timeSql = (ms: number): string =>
  ms === -Infinity ? 'NULL' : `TIMESTAMPTZ ${sqlText(new Date(ms).toISOString())}`;

/** SQL of the first kept time of a row; NULL without a limit. */
function cutoffSql({ kinds, findMs, ownApps }: Cutoffs): string {
  const ofKinds = (idApp: number | undefined): string => {
    const times = kinds.map((kind) => findMs(idApp, kind));
    const [first = -Infinity] = times;
    if (times.every((time) => time === first)) return timeSql(first);
    const cases = kinds.map((kind, index) => `WHEN ${sqlText(kind)} THEN ${timeSql(times[index] ?? -Infinity)}`);
    return `CASE kind ${cases.join(' ')} END`;
  };
  const fallback = ofKinds(undefined);
  const cases = ownApps.flatMap((idApp) => {
    const sql = ofKinds(idApp);
    return sql === fallback ? [] : [`WHEN ${idApp} THEN ${sql}`];
  });
  return cases.length === 0 ? `(${fallback})` : `(CASE id_app ${cases.join(' ')} ELSE ${fallback} END)`;
}

/** SQL that is true for an expired row and never NULL. */
export function expiredSql(cutoffs: Cutoffs): string {
  return `coalesce(event_time < ${cutoffSql(cutoffs)}, false)`;
}

/** Days that the limits remove, by app; by kind only where the kinds differ. `apps`: least and greatest `id_app`. */
export function listRemovedDays({ kinds, findMs, rules }: Cutoffs, [least, greatest]: readonly [number, number]) {
  return rules.apps.flatMap(({ idApp }) => {
    if (idApp < least || idApp > greatest) return [];
    const times = kinds.map((kind) => [kind, findMs(idApp, kind)] as const);
    const isOne = times.every(([, time]) => time === times[0]?.[1]);
    return (isOne ? times.slice(0, 1) : times).flatMap(([kind, time]) =>
      time === -Infinity ? [] : [{ idApp, ...(isOne ? {} : { kind }), before: dayOf(time) }],
    );
  });
}

/** Returns the kind of an event for age limits (`kindsOf`). */
function ruleKindOf(kind: string): string {
  const dataset = importDatasets.find(({ kinds }) => kinds.includes(kind));
  return dataset === undefined || dataset === events ? kind : dataset.table;
}

/** Creates a test of failed events that have exceeded their limit. Events without a readable time stay. */
export function createExpiredTest({ findMs }: Cutoffs): (event: FailedEvent) => boolean {
  return ({ line, lineBase64, load }) => {
    const head = lineBase64 === undefined && load === undefined ? readEventHead(line) : undefined;
    return head?.eventTimeMs !== undefined && head.eventTimeMs < findMs(head.idApp, ruleKindOf(head.kind ?? ''));
  };
}
