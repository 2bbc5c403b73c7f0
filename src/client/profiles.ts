import path from 'node:path';
import { AppError, describeError } from '../runtime/errors.ts';
import { isRecord, membersOf } from '../runtime/files/checksummed-json.ts';
import { ensureFolder, writeFileDurably } from '../runtime/files/durable-file.ts';
import { waitForLock } from '../runtime/files/lock.ts';
import { findPrivateFile } from '../runtime/files/input-file.ts';

/** URLs and secrets of a service. */
export interface Profile {
  readonly importUrl?: string;
  readonly exportUrl?: string;
  readonly idApp?: number;
  readonly token?: string;
  readonly idUser?: string;
  readonly secret?: string;
  /** Absolute path of the service's data folder; absent in profiles of 'profile add' and of 0.3. */
  readonly dataDir?: string;
}

export interface Profiles {
  /** The default profile. */
  readonly current?: string;
  readonly profiles: Readonly<Record<string, Profile>>;
}

const none: Profiles = { profiles: {} };
/** Timeout for the lock of a change, ms. */
const lockWaitMs = 30_000;
const nameRule = /^[A-Za-z0-9][\w.-]{0,63}$/;
const urlMembers = ['importUrl', 'exportUrl'] as const;

/** Returns the path of the profiles. Error: `config_invalid` if the environment has no home. */
export function profilesPath(environment: Readonly<Record<string, string | undefined>>): string {
  const { XDG_CONFIG_HOME: config = '', HOME: home = '' } = environment;
  // The XDG specification ignores relative paths.
  if (path.isAbsolute(config)) return path.join(config, 'tributary', 'profiles.json');
  if (path.isAbsolute(home)) return path.join(home, '.config', 'tributary', 'profiles.json');
  throw new AppError('config_invalid', 'neither HOME nor XDG_CONFIG_HOME is an absolute path', {
    hint: 'Set one of them: the profiles are stored there.',
  });
}

/** Validates an HTTP URL and removes slashes at its end. Error: `usage`. */
export function parseServiceUrl(text: string, what: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol) || url.search !== '' || url.hash !== '')
    throw new AppError('usage', `${what} must be a URL such as https://events.example.com, not '${text}'`);
  if (url.username !== '' || url.password !== '')
    throw new AppError('usage', `${what} must not contain a user or a password`);
  return text.replace(/\/+$/, '');
}

export function parseProfileName(name: string): string {
  if (nameRule.test(name)) return name;
  throw new AppError('usage', `'${name}' is not a profile name: use up to 64 letters, digits and . _ -`);
}

function isProfile(value: unknown): value is Profile {
  if (!isRecord(value)) return false;
  const texts = ['importUrl', 'exportUrl', 'token', 'idUser', 'secret', 'dataDir'].map((name) => value[name]);
  const { idApp } = value;
  return (
    texts.every((text) => text === undefined || typeof text === 'string') &&
    (idApp === undefined || Number.isSafeInteger(idApp))
  );
}

const areProfiles = (value: unknown): value is Profiles['profiles'] =>
  isRecord(value) && Object.entries(value).every(([name, profile]) => nameRule.test(name) && isProfile(profile));

function parseProfiles(file: string, text: string): Profiles {
  try {
    const { current, profiles } = membersOf(JSON.parse(text));
    if (!areProfiles(profiles) || (current !== undefined && typeof current !== 'string'))
      throw new Error('a member is missing or invalid');
    for (const profile of Object.values(profiles))
      for (const member of urlMembers) if (profile[member] !== undefined) parseServiceUrl(profile[member], member);
    return { profiles, ...(current === undefined ? {} : { current }) };
  } catch (error) {
    throw new AppError('config_invalid', `cannot read the profiles in ${file}: ${describeError(error)}`, {
      hint: "Fix the file, or move it away and run 'tributary profile add'.",
    });
  }
}

/** Reads the profiles, if any. Error: `config_invalid`, also if other users can read the file. */
export async function readProfiles(file: string): Promise<Profiles> {
  const text = await findPrivateFile(file);
  return text === undefined ? none : parseProfiles(file, text);
}

/** Changes the profiles, one change at a time, durably. */
export async function changeProfiles(file: string, change: (profiles: Profiles) => Profiles): Promise<Profiles> {
  const folder = path.dirname(file);
  await ensureFolder(folder);
  const lock = await waitForLock(folder, 'a change of the profiles', lockWaitMs);
  try {
    const changed = change(await readProfiles(file));
    await writeFileDurably(file, `${JSON.stringify(changed, null, 2)}\n`);
    return changed;
  } finally {
    lock.release();
  }
}

export function noSuchProfile({ profiles }: Profiles, name: string): AppError {
  return new AppError('not_found', `profile ${name} does not exist`, {
    hint:
      Object.keys(profiles).length === 0
        ? "Run 'tributary profile add' or 'tributary init' to create one."
        : `Pass one of: ${Object.keys(profiles).join(', ')}.`,
  });
}

/** Returns the name of the profile of a data folder. */
export function findOwnName({ profiles }: Profiles, dataDir: string): string | undefined {
  return Object.keys(profiles).find((name) => profiles[name]?.dataDir === dataDir);
}

/**
 * Returns the named profile, else that of the data folder, else the current one, else an empty one. Error: `not_found`.
 */
export function chooseProfile(profiles: Profiles, name: string | undefined, dataDir: string): Profile {
  const chosen = name ?? findOwnName(profiles, dataDir) ?? profiles.current;
  if (chosen === undefined) return {};
  const profile = Object.hasOwn(profiles.profiles, chosen) ? profiles.profiles[chosen] : undefined;
  if (profile === undefined) throw noSuchProfile(profiles, chosen);
  return profile;
}

/** A profile without secrets. */
export function describeProfile(name: string, { token, secret, ...shown }: Profile, isCurrent: boolean) {
  return { profile: name, isCurrent, ...shown, hasToken: token !== undefined, hasSecret: secret !== undefined };
}
