import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { slotSteps } from '../../src/export/schedules/reconcile.ts';
import type { ReportJob } from '../../src/reports/reports.ts';
import { chaosFigure, chaosSeed, inLongForm } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { createExportArea, type Credentials, type ProcessArea } from '../helpers/export-area.ts';
import { createRandom } from '../helpers/export-events.ts';
import { firstInstant } from '../helpers/export-oracle.ts';
import { testFolder } from '../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../helpers/lake-fixture.ts';
import { addDays, firstMoment } from '../helpers/slot-oracle.ts';
import { waitFor } from '../helpers/wait.ts';

const slots = chaosFigure('TRIBUTARY_TEST_SLOTS', { short: 24, long: 1000 });
const seed = chaosSeed();
const again = `TRIBUTARY_TEST_SLOTS=${slots} make chaos PART=schedule-slots SEED=${seed}`;

/** Daily slots in hours of clock changes: at times such as 02:30 clocks show a time twice, or not at all. */
const plans = [
  { zone: 'Europe/Berlin', at: '02:30' },
  { zone: 'Europe/London', at: '01:15' },
  { zone: 'America/New_York', at: '02:10' },
  { zone: 'Australia/Sydney', at: '02:45' },
  { zone: 'Asia/Calcutta', at: '00:00' },
] as const;
const daysEach = Math.ceil(slots / 2 / plans.length);
const longestStopHours = daysEach > 20 ? 5 * 24 : 36;
const hourMs = 3_600_000;

/** Creates an event at each full hour. */
function hourlyEvents(fromSeconds: number, hours: number): FixtureEvent[] {
  return Array.from({ length: hours }, (_, hour) => ({
    event_id: `e${hour}`,
    kind: 'custom_event',
    id_app: 7,
    event_time: fromSeconds + hour * 3600,
    available_at: fromSeconds,
    custom_user_id: 'u',
    custom_event_name: 'e',
  }));
}

/** A clock that the test sets and another process reads. */
function createClockFile(file: string, startMs: number) {
  const clock = {
    nowMs: startMs,
    set(nowMs: number): void {
      clock.nowMs = nowMs;
      writeFileSync(`${file}.new`, String(nowMs));
      renameSync(`${file}.new`, file);
    },
  };
  clock.set(startMs);
  return clock;
}

/** Reads the requests of a folder as they appear: each once, by its increasing id. */
function createReader(reportsDir: string) {
  const jobs: ReportJob[] = [];
  const read = (id: number): ReportJob =>
    JSON.parse(readFileSync(path.join(reportsDir, String(id), 'job.json'), 'utf8')) as ReportJob;
  return {
    jobs,
    /** An id without a request was assigned by a process that was killed then. */
    look(): number {
      for (let id = (jobs.at(-1)?.id ?? 0) + 1, missing = 0; missing < 20; id += 1) {
        if (existsSync(path.join(reportsDir, String(id), 'job.json'))) jobs.push(read(id));
        else missing += 1;
      }
      return jobs.length;
    },
    again: (): ReportJob[] => jobs.map(({ id }) => read(id)),
  };
}

/** Returns the slots of a plan that become due between two times, by an independent oracle. */
function slotsBetween({ zone, at }: (typeof plans)[number], fromMs: number, toMs: number): string[] {
  const first = addDays(new Date(fromMs).toISOString().slice(0, 10), -2);
  const dates = Array.from({ length: Math.ceil((toMs - fromMs) / (24 * hourMs)) + 4 }, (_, day) => addDays(first, day));
  return dates.filter((date) => {
    const ms = firstMoment(zone, date, at) * 1000;
    return ms > fromMs && ms <= toMs;
  });
}

/** Counts the slots of all plans between two times. */
function countSlots(fromMs: number, toMs: number): number {
  return plans.reduce((sum, plan) => sum + slotsBetween(plan, fromMs, toMs).length, 0);
}

describe('the slots of schedules', () => {
  it.for([
    { what: 'to summer', start: daysEach > 20 ? '2026-02-25' : '2026-03-27' },
    { what: 'to winter', start: daysEach > 20 ? '2026-09-15' : '2026-10-23' },
  ])(
    `Each slot has one export of its day, through kills, stops of days, clock steps and the change $what (${slots / 2} slots, seed ${seed})`,
    { timeout: 120_000 + slots * 1000 },
    async ({ what, start }, { skip }) => {
      inLongForm(skip);
      const random = createRandom(seed);
      const area = createExportArea(testFolder());
      await area.addApp({ idApp: 7, platform: 'web', idAccount: 1 });
      const user: Credentials = await area.addUser({});
      const startMs = Date.parse(`${start}T12:00:00Z`);
      await writeLake(area.tableDir, [hourlyEvents(startMs / 1000 - 3 * 86_400, (daysEach + 6) * 24)]);
      const clockFile = path.join(area.dataDir, 'clock');
      const clock = createClockFile(clockFile, startMs);
      // Fewer concurrent requests than schedules, so that some slots have to wait.
      const options = { schedulesEveryMs: 20, maxExports: 3, linkTtlSeconds: 10 ** 9 };
      const startStage = (crashAt?: string): Promise<ProcessArea> =>
        area.startProcess(options, { clockFile, runsHere: true, ...(crashAt === undefined ? {} : { crashAt }) });
      let stage = await startStage();
      const schedules = new Map<string, (typeof plans)[number]>();
      for (const plan of plans) {
        const given = `every=day&at=${plan.at}&timezone=${plan.zone}&catchUp=60&event=customEvents&selectors=eventId`;
        const { json, status, body } = await stage.call(user, '/api/schedule/v1/create.json', {
          method: 'POST',
          body: given,
        });
        expect(status, body.toString()).toBe(200);
        schedules.set(String((json?.data as { idSchedule?: string } | undefined)?.idSchedule), plan);
      }
      const reader = createReader(area.reportsDir);
      const figures = { slots: 0, kills: 0, stops: 0, crashes: 0, setBack: 0 };
      const restart = async (): Promise<void> => {
        await stage.kill();
        stage = await startStage();
        figures.kills += 1;
      };

      /** Advances the time in one of several ways. */
      async function pass(toMs: number): Promise<void> {
        const way = random(4);
        const due = figures.slots + countSlots(clock.nowMs, toMs);
        if (way === 0) {
          clock.set(toMs);
          await restart();
        } else if (way === 1) {
          await stage.kill();
          figures.stops += 1;
          clock.set(toMs);
          stage = await startStage();
        } else if (way === 2) {
          await stage.kill();
          clock.set(toMs);
          // Killed before it is ready, or a little later.
          const step = `${slotSteps[random(slotSteps.length)] ?? ''}:${1 + random(2)}`;
          const dying = await startStage(step).catch(() => undefined);
          // With few due slots it may never reach the step.
          const isDone = waitFor('all that are due are made', () => reader.look() >= due, 120_000);
          if (dying !== undefined) await Promise.race([dying.exited, isDone]).then(() => dying.kill());
          figures.crashes += 1;
          stage = await startStage();
        } else clock.set(toMs);
      }

      const endMs = startMs + daysEach * 24 * hourMs;
      while (clock.nowMs < endMs) {
        const beforeMs = clock.nowMs;
        const seen = reader.jobs.length;
        await pass(Math.min(endMs, beforeMs + (12 + random(longestStopHours)) * hourMs));
        figures.slots += countSlots(beforeMs, clock.nowMs);
        if (random(2) === 0) {
          await waitFor('some more are made', () => reader.look() > seen || seen === figures.slots, 120_000);
          await restart();
        }
        await waitFor(`${figures.slots} slots are made`, () => reader.look() >= figures.slots, 120_000);
        if (random(3) > 0) continue;
        const aheadMs = clock.nowMs;
        clock.set(aheadMs - (1 + random(72)) * hourMs);
        await restart();
        clock.set(aheadMs);
        figures.setBack += 1;
      }
      await waitFor('all have ended', () => reader.again().every(({ state }) => state === 'success'), 120_000);
      // Another start creates no export.
      await restart();
      await waitFor('it has looked', async () => {
        const { status } = await stage.call(user, '/api/report/v1/file/list.json');
        return status === 200;
      });
      await stage.kill();

      reader.look();
      const made = [...schedules].map(([idSchedule, plan]) => {
        const own = reader.again().filter(({ slot }) => slot?.idSchedule === idSchedule);
        const names = own.map(({ slot }) => slot?.name ?? '');
        const spans = own.map(({ request }) => (request as { eventTime: unknown }).eventTime);
        const days = names.map((name) => ({
          fromSeconds: firstInstant(plan.zone, addDays(name, -1)),
          beforeSeconds: firstInstant(plan.zone, name),
        }));
        expect(spans).toEqual(days);
        // A day of a clock change has 23 or 25 hours, with an event in each.
        const hours = days.map(({ fromSeconds, beforeSeconds }) => (beforeSeconds - fromSeconds) / 3600);
        expect(own.map(({ files = [] }) => files.reduce((sum, { rows }) => sum + rows, 0))).toEqual(hours);
        expect(names).toEqual(slotsBetween(plan, startMs, endMs));
        return names.length;
      });
      const total = made.reduce((sum, count) => sum + count, 0);
      recordFinding({
        promise: 'P10',
        what: `slots of schedules through kills, stops of days and the change of clocks ${what}`,
        wanted: 'one export for each slot',
        figures: { ...figures, exports: reader.jobs.length },
        reached: total === reader.jobs.length && total === figures.slots,
        seed,
        again,
      });
      expect(reader.jobs.length).toBe(figures.slots);
    },
  );
});
