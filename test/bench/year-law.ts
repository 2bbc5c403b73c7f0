import { createRandom } from '../../src/demo/random.ts';
import { inQuick } from './bench-size.ts';

/**
 * The sizes of a year. App `a` of `apps` has a share of the events in proportion to 1 / `a`: of 1,000 apps, the first
 * has 13 %, the 500th 0.027 %. Every day has as many events as the others. A user has `eventsOfUser` events on average,
 * and registers on a day of the year; as many register each day.
 */
export interface Year {
  readonly seed: number;
  /** Events of all apps. */
  readonly events: number;
  /** Number of all apps; their ids begin at 1. */
  readonly apps: number;
  /** The first day, Unix ms. */
  readonly firstDayMs: number;
  /** Ids of the apps in the lake, ascending; absent: all. */
  readonly only?: readonly number[];
}

/** Days of a year; fewer in quick mode. */
export const daysOfYear = inQuick(30, 365);
export const dayMs = 86_400_000;
const eventsOfUser = 20;
/** Part of logins in the events other than registrations. */
const partOfLogins = 0.15;

/** Kinds in a lake of a year. */
export const yearKinds = ['custom_event', 'login', 'registration'] as const;
export type YearKind = (typeof yearKinds)[number];

/** The events of an app on a day. */
export interface AppDay {
  readonly idApp: number;
  readonly rows: Readonly<Record<YearKind, number>>;
  /** Number of users who registered before the day. */
  readonly usersBefore: number;
}

/** Returns the days of all apps: an app without events on a day is absent. */
export function planDay({ seed, events, apps, only }: Year, day: number): AppDay[] {
  const sum = Array.from({ length: apps }, (_, index) => 1 / (index + 1)).reduce((total, part) => total + part, 0);
  const ids = only ?? Array.from({ length: apps }, (_, index) => index + 1);
  return ids.flatMap((idApp) => {
    const ofApp = events / sum / idApp;
    // The days on which a small app has an event differ between the apps.
    const random = createRandom(seed * apps + idApp);
    const [eventPhase, userPhase] = [random.next(), random.next()];
    const eventsBefore = (of: number): number => Math.floor((ofApp * of) / daysOfYear + eventPhase);
    const usersBefore = (of: number): number => Math.floor((ofApp / eventsOfUser) * (of / daysOfYear) + userPhase);
    const all = eventsBefore(day + 1) - eventsBefore(day);
    const registration = Math.min(all, usersBefore(day + 1) - usersBefore(day));
    const login = Math.round((all - registration) * partOfLogins);
    const rows = { registration, login, custom_event: all - registration - login };
    return all === 0 ? [] : [{ idApp, rows, usersBefore: usersBefore(day) }];
  });
}

/** Returns the date of a day. */
export function dateOfYear({ firstDayMs }: Pick<Year, 'firstDayMs'>, day: number): string {
  return new Date(firstDayMs + day * dayMs).toISOString().slice(0, 10);
}

/** Cuts apps between files of about `rowsOfFile` rows of a kind; a larger app has its own file. */
export function cutFiles(plan: readonly AppDay[], kind: YearKind, rowsOfFile: number): AppDay[][] {
  const files: AppDay[][] = [];
  let rows = Infinity;
  for (const app of plan) {
    if (app.rows[kind] === 0) continue;
    if (rows >= rowsOfFile) {
      files.push([]);
      rows = 0;
    }
    files.at(-1)?.push(app);
    rows += app.rows[kind];
  }
  return files;
}
