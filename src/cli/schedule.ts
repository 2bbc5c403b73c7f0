import { openAccessReader } from '../access/store.ts';
import { dataPaths, type Config } from '../config.ts';
import { parseArguments } from '../export/api/arguments.ts';
import { createZoneDays } from '../export/api/calendar.ts';
import { isRefusal, type Refusal } from '../export/api/envelope.ts';
import { createRequestRules } from '../export/api/request-rules.ts';
import { tableDirOf } from '../export/jobs/table-of.ts';
import { createAccountSchedules, type AccountSchedules } from '../export/schedules/account-schedules.ts';
import { createSlotClock } from '../export/schedules/slot-clock.ts';
import { findKeptVersions } from '../lake/log/kept-versions.ts';
import { openDuckdb } from '../lake/sql/duckdb.ts';
import { createClock } from '../runtime/clock.ts';
import { AppError } from '../runtime/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { listSegmentIds } from '../segments/segment-store.ts';
import type { User } from '../access/access.ts';
import { parseId, parseWords, resolveConfig, type Command, type CommandContext } from './command.ts';

const usages = {
  add: 'tributary schedule add --user ID ARGUMENTS [--data DIR]',
  list: 'tributary schedule list --account N [--data DIR]',
  remove: 'tributary schedule remove ID --account N [--data DIR]',
  pause: 'tributary schedule pause ID --account N [--data DIR]',
  resume: 'tributary schedule resume ID --account N [--data DIR]',
} as const;

type Verb = keyof typeof usages;
const isVerb = (verb: string | undefined): verb is Verb => verb !== undefined && Object.hasOwn(usages, verb);

/** The schedules of a data folder, and its users, while a command works on them. */
interface OpenSchedules {
  readonly schedules: AccountSchedules;
  readonly findUser: (idUser: string) => User | undefined;
}

/** The engine only reckons with days. */
const engineMemoryMb = 64;

async function withSchedules(config: Config, run: (open: OpenSchedules) => Promise<void>): Promise<void> {
  const paths = dataPaths(config.dataDir);
  const access = openAccessReader(paths, createLogger(config.logLevel));
  const engine = await openDuckdb({ memoryMb: engineMemoryMb, threads: 1 });
  try {
    const zoneDays = createZoneDays(engine);
    const parseRequest = createRequestRules({
      zoneDays,
      listSegmentIds: (idAccount) => listSegmentIds(paths.segments, idAccount),
      findVersions: (event) => findKeptVersions(tableDirOf(paths.lake, { event })),
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
  if (isRefusal(result))
    throw new AppError('usage', result.detail ?? 'the schedule is refused', { hint: `Usage: ${usages.add}` });
}

async function add(args: readonly string[], { environment, answer }: CommandContext): Promise<void> {
  const { values, positionals } = parseWords(args, ['ARGUMENTS'], { user: { type: 'string' } }, usages.add);
  const idUser = String(parseId(values.user, '--user'));
  const given = parseArguments(`?${positionals[0] ?? ''}`, undefined);
  assertDone(given);
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  await withSchedules(config, async ({ schedules, findUser }) => {
    const user = findUser(idUser);
    if (user === undefined)
      throw new AppError('not_found', `there is no user ${idUser}`, { hint: "'tributary user list' names them." });
    const added = await schedules.create(user, given);
    assertDone(added);
    answer(added);
  });
}

async function change(
  verb: Exclude<Verb, 'add'>,
  args: readonly string[],
  { environment, answer }: CommandContext,
): Promise<void> {
  const words = verb === 'list' ? [] : ['ID'];
  const { values, positionals } = parseWords(args, words, { account: { type: 'string' } }, usages[verb]);
  const idAccount = parseId(values.account, '--account');
  const [idSchedule = ''] = positionals;
  const config = resolveConfig(environment, { TRIBUTARY_DATA_DIR: values.data });
  await withSchedules(config, async ({ schedules }) => {
    if (verb === 'list') {
      const listed = await schedules.list(idAccount);
      for (const schedule of listed.schedules) answer(schedule);
      for (const damaged of listed.damaged) answer({ idSchedule: damaged, status: 'Damaged' });
      return;
    }
    const result =
      verb === 'remove'
        ? (await schedules.remove(idAccount, idSchedule)) && { idSchedule, removed: true }
        : await schedules[verb](idAccount, idSchedule);
    if (result === undefined || result === false)
      throw new AppError('not_found', `account ${idAccount} has no schedule ${idSchedule}`, {
        hint: "'tributary schedule list' names them.",
      });
    answer(result);
  });
}

/** `tributary schedule add|list|remove|pause|resume`: exports that are made again and again for a user. */
export const scheduleCommand: Command = {
  name: 'schedule',
  usage: Object.values(usages).join('\n'),
  summary: 'add, list, remove, pause and resume schedules: exports that are made again and again',
  details: [
    '--user      whose exports they are: with the permissions, the limits and the webhooks of that user',
    '--account   whose schedules they are',
    "ARGUMENTS   those of POST /api/schedule/v1/create.json: 'every=day&at=04:00&timezone=Europe/Berlin&event=customEvents&selectors=eventId'",
    'every       hour, day or week; at: the time on the clocks of the zone; weekday: of a week; catchUp: slots that are made up after a stop',
    'An export has the hour, the day or the week before its slot; with sinceVersion=PLACE what came since the last one.',
  ],
  async run([verb, ...args], context) {
    if (!isVerb(verb))
      throw new AppError('usage', `'schedule' takes ${Object.keys(usages).join(', ')}, not '${verb ?? ''}'`, {
        hint: `Usage: ${Object.values(usages).join(', ')}`,
      });
    await (verb === 'add' ? add(args, context) : change(verb, args, context));
  },
};
