import { openDestinations } from '../destinations/destination-store.ts';
import { openAccessReader } from '../access/store.ts';
import { parseArguments } from '../export/api/arguments.ts';
import { createCalendar } from '../export/api/calendar.ts';
import { isApiError, type ExportApiError } from '../export/api/envelope.ts';
import { createRequestParser } from '../export/api/parse-request.ts';
import { tableDirOf } from '../export/jobs/read-plan.ts';
import { createAccountSchedules, type AccountSchedules } from '../export/schedules/account-schedules.ts';
import { createSlotClock } from '../export/schedules/slot-clock.ts';
import { findAvailableVersions } from '../lake/log/change-feed.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { AppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { listSegmentIds } from '../segments/segment-store.ts';
import type { User } from '../access/access.ts';
import { defineDataCommand, type DataContext, type CommandGroup } from './command.ts';
import { many, positive, failUsage, required, text } from './option-specs.ts';

/** The schedules of a data folder, and its users, for one command. */
interface OpenSchedules {
  readonly schedules: AccountSchedules;
  readonly findUser: (idUser: string) => User | undefined;
}

/** Memory of the engine, which only computes days, MiB. */
const engineMemoryMb = 64;

async function withSchedules<T>(
  { config, paths, clock }: DataContext,
  run: (open: OpenSchedules) => Promise<T>,
): Promise<T> {
  const access = await openAccessReader(paths, createLogger(config.logLevel));
  const engine = await openDuckdb({ memoryMb: engineMemoryMb, threads: 1 });
  try {
    const calendar = createCalendar(engine);
    const parseRequest = createRequestParser({
      calendar,
      listSegmentIds: (idAccount) => listSegmentIds(paths.segments, idAccount),
      findVersions: (event) => findAvailableVersions(tableDirOf(paths.lake, { event })),
      hasDestination: async (idAccount, id) => (await openDestinations(paths).find(idAccount, id)) !== undefined,
      appsOfAccount: (idAccount) => access.current().appsOfAccount(idAccount),
    });
    const schedules = createAccountSchedules({
      schedules: paths.schedules,
      parseRequest,
      slotClock: createSlotClock(calendar),
      access,
      clock,
    });
    return await run({ schedules, findUser: (idUser) => access.current().findUser(idUser) });
  } finally {
    engine.close();
    access.close();
  }
}

function assertDone<T extends object>(result: T | ExportApiError): asserts result is T {
  if (isApiError(result)) failUsage(result.detail ?? 'the schedule is invalid');
}

const add = defineDataCommand({
  name: 'add',
  summary: 'create a schedule',
  arguments: {
    ARGUMENTS: many(text('parameters of POST /api/schedule/v1/create.json: NAME=VALUE each, or joined by &')),
  },
  options: {
    user: required(positive('id of the user whose permissions, limits and webhooks apply', 'ID')),
  },
  details: [
    'Values are URL-encoded: %26 for &, %2B for +.',
    'every: hour, day or week. at: local time. weekday: day of a weekly slot. catchUp: number of missed slots to export after downtime.',
    'Each export covers the hour, day or week before its slot; with sinceVersion=CURSOR, the rows since the previous export.',
  ],
  examples: [
    'schedule add --user 1 every=day at=04:00 timezone=Europe/Berlin event=customEvents selectors=eventId,tsEvent',
    "schedule add --user 1 'every=day&at=04:00&timezone=Europe/Berlin&event=customEvents&selectors=eventId'",
  ],
  async run({ ARGUMENTS: query, user: id }, context) {
    const idUser = String(id);
    const parsedArguments = parseArguments(`?${query.join('&')}`, undefined);
    assertDone(parsedArguments);
    return withSchedules(context, async ({ schedules, findUser }) => {
      const user = findUser(idUser);
      if (user === undefined)
        throw new AppError('not_found', `user ${idUser} does not exist`, {
          hint: "Run 'tributary user list' for all users.",
        });
      const added = await schedules.create(user, parsedArguments);
      assertDone(added);
      return added;
    });
  },
});

const account = required(positive('account id'));

const list = defineDataCommand({
  name: 'list',
  summary: 'list the schedules of an account',
  isList: true,
  options: { account },
  examples: ['schedule list --account 1'],
  run: ({ account: idAccount }, context) =>
    withSchedules(context, async ({ schedules }) => {
      const listed = await schedules.list(idAccount);
      return [...listed.schedules, ...listed.damaged.map((idSchedule) => ({ idSchedule, status: 'Damaged' }))];
    }),
});

/** A change of one schedule; undefined if the account has none with that id. */
type Change = (schedules: AccountSchedules, idAccount: number, idSchedule: string) => Promise<object | undefined>;

const changeVerb = (name: string, summary: string, change: Change) =>
  defineDataCommand({
    name,
    summary,
    arguments: { ID: text("schedule id, see 'tributary schedule list'") },
    options: { account },
    examples: [`schedule ${name} sc_8b7f9a0b78ee61cb --account 1`],
    run: ({ ID: idSchedule, account: idAccount }, context) =>
      withSchedules(context, async ({ schedules }) => {
        const changed = await change(schedules, idAccount, idSchedule);
        if (changed !== undefined) return changed;
        throw new AppError('not_found', `account ${idAccount} has no schedule ${idSchedule}`, {
          hint: "Run 'tributary schedule list' for all schedules.",
        });
      }),
  });

const orRefused: Change = async (schedules, idAccount, idSchedule) => {
  const asked = await schedules.run(idAccount, idSchedule);
  if (asked !== undefined) assertDone(asked);
  return asked;
};

const runs = {
  ...changeVerb('runs', 'list the newest runs of a schedule', (schedules, ...id) => schedules.runs(...id)),
  isList: true,
};

export const scheduleCommand: CommandGroup = {
  name: 'schedule',
  summary: 'create, list, run, pause, resume and remove schedules of recurring exports',
  commands: [
    add,
    list,
    changeVerb('remove', 'remove a schedule', async (schedules, idAccount, idSchedule) =>
      (await schedules.remove(idAccount, idSchedule)) ? { idSchedule, removed: true } : undefined,
    ),
    changeVerb('run', 'run a schedule now; the service creates the export within seconds', orRefused),
    runs,
    changeVerb('pause', 'pause a schedule', (schedules, ...id) => schedules.pause(...id)),
    changeVerb('resume', 'resume a schedule', (schedules, ...id) => schedules.resume(...id)),
  ],
};
