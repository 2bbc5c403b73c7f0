import type { UserMeaning } from '../operate/erase/erase-table.ts';
import { userKinds, type ErasureTarget } from '../operate/erase/erase-target.ts';
import { AppError } from '../runtime/errors.ts';
import { getTextFile } from '../runtime/files/input-file.ts';
import type { OptionValues } from './command.ts';
import { file, flag, oneOf, positive, refuse, text, withDefault, present } from './words.ts';

export const eraseOptions = {
  user: text('events of this user', 'ID'),
  device: text('events of this device', 'ID'),
  file: file('ids, one a line, of users or, with --as device, of devices'),
  as: withDefault(oneOf(['user', 'device'], 'what the ids of --file are'), 'user'),
  kind: oneOf(userKinds, 'what kind of user id it is, where several are meant'),
  app: positive('events of this app', 'ID'),
  account: positive('the apps of one account only'),
  dryRun: flag('count, and change nothing'),
  yes: flag('do not ask on a terminal'),
  now: flag('wait for no reader of the lake: its queries may fail'),
} as const;

type EraseWords = Partial<OptionValues<typeof eraseOptions>>;

/** The account of an app, removed apps included. */
export interface AccountOfApp {
  readonly idApp: string;
  readonly idAccount: string;
}

const named = 3;

/** Reads ids, one per line; only the end of a line is not part of an id. */
async function readIds(name: string): Promise<string[]> {
  const lines = await getTextFile(name).catch((error: unknown) => {
    throw new AppError('usage', `cannot read ${name}`, { cause: error });
  });
  return [...new Set(lines.split(/\r?\n/).filter((line) => line !== ''))];
}

/** Returns the app of `--app`, or all apps of `--account`, removed ones included. */
function parseApps(
  app: number | undefined,
  account: number | undefined,
  listApps: () => readonly AccountOfApp[],
): number[] | undefined {
  if (app !== undefined && account !== undefined) refuse('--app and --account exclude each other');
  if (app !== undefined) return [app];
  if (account === undefined) return undefined;
  const idAccount = String(account);
  const apps = listApps()
    .filter((each) => each.idAccount === idAccount)
    .map(({ idApp }) => Number(idApp));
  if (apps.length === 0)
    throw new AppError('not_found', `account ${idAccount} has no app`, { hint: "'tributary app list' names them." });
  return apps;
}

export async function parseErasure(
  { user, device, app, account, kind: userKind, file: list, as = 'user' }: EraseWords,
  listApps: () => readonly AccountOfApp[],
): Promise<ErasureTarget> {
  if (list !== undefined && (as === 'user' ? user : device) !== undefined)
    refuse(`--${as} and --file name the same kind of id: put them into the file`);
  const ids = list === undefined ? undefined : await readIds(list);
  const users = ids !== undefined && as === 'user' ? ids : user === undefined ? undefined : [user];
  const devices = ids !== undefined && as === 'device' ? ids : device === undefined ? undefined : [device];
  if (userKind !== undefined && users === undefined) refuse('--kind says what kind of id --user or --file names');
  const apps = parseApps(app, account, listApps);
  // `--account` alone would erase a whole account.
  if (users === undefined && devices === undefined && app === undefined)
    refuse("'erase' needs --user, --device, --file or --app");
  return present({ users, userKind, devices, apps });
}

function describeIds(ids: readonly string[]): string {
  return `${ids
    .slice(0, named)
    .map((id) => `'${id}'`)
    .join(', ')}${ids.length > named ? ` and ${ids.length - named} more` : ''}`;
}

/** Returns the ids with several meanings, by a property of a meaning. */
function findAmbiguous(found: readonly UserMeaning[], of: (meaning: UserMeaning) => string): string[] {
  const seen = new Map<string, Set<string>>();
  for (const meaning of found) seen.set(meaning.id, (seen.get(meaning.id) ?? new Set()).add(of(meaning)));
  return [...seen].flatMap(([id, meanings]) => (meanings.size > 1 ? [id] : []));
}

/**
 * Refuses ids of several people: user ids of several kinds, or in apps of several accounts. Error: `usage`, with the
 * option that distinguishes them.
 */
export function assertOneMeaning(
  found: readonly UserMeaning[],
  target: ErasureTarget,
  listApps: () => readonly AccountOfApp[],
): void {
  if (target.apps === undefined) {
    const accounts = new Map(listApps().map(({ idApp, idAccount }) => [Number(idApp), idAccount]));
    const several = findAmbiguous(found, ({ idApp }) => accounts.get(idApp) ?? `the account of app ${idApp}`);
    if (several.length > 0)
      throw new AppError('usage', `${describeIds(several)} stands in events of several accounts: nothing was erased`, {
        hint: 'Name the account by --account, or the app by --app.',
      });
  }
  if (target.userKind !== undefined) return;
  const several = findAmbiguous(found, ({ kind }) => kind);
  if (several.length > 0)
    throw new AppError(
      'usage',
      `${describeIds(several)} stands in events as user ids of several kinds (${[...new Set(found.map(({ kind }) => kind))].join(', ')}): nothing was erased`,
      { hint: 'Name the kind by --kind.' },
    );
}
