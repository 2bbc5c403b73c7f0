import { openAccessReader } from '../access/store.ts';
import { dataPaths, type Config } from '../config.ts';
import { parseArguments } from '../export/api/arguments.ts';
import { createZoneDays } from '../export/api/calendar.ts';
import { isRefusal, type Refusal } from '../export/api/envelope.ts';
import { createRequestRules } from '../export/api/request-rules.ts';
import { tableDirOf } from '../export/jobs/read-plan.ts';
import { createAccountSchedules, type AccountSchedules } from '../export/schedules/account-schedules.ts';
import { createSlotClock } from '../export/schedules/slot-clock.ts';
import { findKeptVersions } from '../lake/log/change-feed.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { listSegmentIds } from '../segments/segment-store.ts';
import type { User } from '../access/access.ts';
import { verb, type Group, openData } from './command.ts';
import { many, positive, refuse, required, text } from './words.ts';

/** The schedules of a data folder, and its users, while a command works on them. */
interface OpenSchedules {
  readonly schedules: AccountSchedules;
  readonly findUser: (idUser: string) => User | undefined;
}

/** The engine only reckons with days. */
const engineMemoryMb = 64;

async function withSchedules(config: Config, run: (open: OpenSchedules) => Promise<void>): Promise<void> {
  const paths = dataPaths(config.dataDir);
  const access = await openAccessReader(paths, createLogger(config.logLevel));
  const engine = await openDuckdb({ memoryMb: engineMemoryMb, threads: 1 });
  try {
    const zoneDays = createZoneDays(engine);
    const parseRequest = createRequestRules({
      zoneDays,
      listSegmentIds: (idAccount) => listSegmentIds(paths.segments, idAccount),
      findVersions: (event) => findKeptVersions(tableDirOf(paths.lake, { event })),
      appsOfAccount: (idAccount) => access.current().appsOfAccount(idAccount),
    });
    const schedules = createAccountSchedules({
      schedules: paths.schedules,
      parseRequest,
      slotClock: createSlotClock(zoneDays),
      access,
      clock: createClock(config.clockOffsetSeconds),
    });
    await run({ schedules, findUser: (idUser) => access.current().findUser(idUser) });
  } finally {
    engine.close();
    access.close();
  }
}

function assertDone<T extends object>(result: T | Refusal): asserts result is T {
  if (isRefusal(result)) refuse(result.detail ?? 'the schedule is refused');
}

const add = verb({
  name: 'add',
  summary: 'add a schedule',
  words: {
    ARGUMENTS: many(
      text('those of POST /api/schedule/v1/create.json, each NAME=VALUE, or all as one word with & between'),
    ),
  },
  options: {
    user: required(
      positive('whose exports they are: with the permissions, the limits and the webhooks of that user', 'ID'),
    ),
  },
  details: [
    'Values are as in an address: %26 is an &, %2B a plus.',
    'every: hour, day or week; at: the time on the clocks of the zone; weekday: of a week; catchUp: slots that are made up after a stop.',
    'An export has the hour, the day or the week before its slot; with sinceVersion=PLACE what came since the last one.',
  ],
  examples: [
    'schedule add --user 1 every=day at=04:00 timezone=Europe/Berlin event=customEvents selectors=eventId,tsEvent',
    "schedule add --user 1 'every=day&at=04:00&timezone=Europe/Berlin&event=customEvents&selectors=eventId'",
  ],
  async run({ ARGUMENTS: query, user: id, data }, { environment, answer }) {
    const idUser = String(id);
    const given = parseArguments(`?${query.join('&')}`, undefined);
    assertDone(given);
    const { config } = openData(data, { environment });
    await withSchedules(config, async ({ schedules, findUser }) => {
      const user = findUser(idUser);
      if (user === undefined)
        throw new AppError('not_found', `there is no user ${idUser}`, { hint: "'tributary user list' names them." });
      const added = await schedules.create(user, given);
      assertDone(added);
      answer(added);
    });
  },
});

const account = required(positive('whose schedules they are'));

const list = verb({
  name: 'list',
  summary: 'list the schedules of an account',
  isList: true,
  options: { account },
  examples: ['schedule list --account 1'],
  async run({ account: idAccount, data }, { environment, answer }) {
    const { config } = openData(data, { environment });
    await withSchedules(config, async ({ schedules }) => {
      const listed = await schedules.list(idAccount);
      for (const schedule of listed.schedules) answer(schedule);
      for (const damaged of listed.damaged) answer({ idSchedule: damaged, status: 'Damaged' });
    });
  },
});

/** A change of one schedule; undefined where the account has none of that id. */
type Change = (schedules: AccountSchedules, idAccount: number, idSchedule: string) => Promise<object | undefined>;

const changeVerb = (name: string, summary: string, change: Change) =>
  verb({
    name,
    summary,
    words: { ID: text("the schedule, as 'tributary schedule list' has it") },
    options: { account },
    examples: [`schedule ${name} sc_8b7f9a0b78ee61cb --account 1`],
    async run({ ID: idSchedule, account: idAccount, data }, { environment, answer }) {
      const { config } = openData(data, { environment });
      await withSchedules(config, async ({ schedules }) => {
        const changed = await change(schedules, idAccount, idSchedule);
        if (changed === undefined)
          throw new AppError('not_found', `account ${idAccount} has no schedule ${idSchedule}`, {
            hint: "'tributary schedule list' names them.",
          });
        answer(changed);
      });
    },
  });

/** `tributary schedule add|list|remove|pause|resume`: exports that are made again and again for a user. */
export const scheduleCommand: Group = {
  name: 'schedule',
  summary: 'add, list, remove, pause and resume schedules: exports that are made again and again',
  verbs: [
    add,
    list,
    changeVerb('remove', 'remove a schedule', async (schedules, idAccount, idSchedule) =>
      (await schedules.remove(idAccount, idSchedule)) ? { idSchedule, removed: true } : undefined,
    ),
    changeVerb('pause', 'make no exports by it for now', (schedules, ...id) => schedules.pause(...id)),
    changeVerb('resume', 'make exports by it again', (schedules, ...id) => schedules.resume(...id)),
  ],
};
