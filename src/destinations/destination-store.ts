/**
 * Destinations: buckets and folders of accounts to which exports are delivered.
 *
 * Layout: `destinations/<account>/<id>.json`, one record each; the secret is encrypted under `keys/destinations.key`.
 * Ids are random and never repeat.
 * Invariant: a damaged record affects no other destination.
 * Crash: a record is the previous or the new one.
 */
import { randomBytes } from 'node:crypto';
import { AppError } from '../runtime/errors.ts';
import { decryptText, encryptText } from '../runtime/encrypted-text.ts';
import { ensureKey, openKeys } from '../runtime/store/keys.ts';
import { openMarkedRecords, type MarkedRecords } from '../runtime/store/marked-records.ts';
import type { RecordKind } from '../runtime/store/records.ts';
import { isCount, isFlag, isId, isText, matching, oneOf, shapeOf } from '../runtime/store/shape.ts';

/** A prefix of an S3-compatible bucket. */
export interface BucketTarget {
  readonly kind: 's3';
  /** URL of the server. */
  readonly endpoint: string;
  readonly region: string;
  readonly bucket: string;
  /** Empty, or ends with `/`. */
  readonly prefix: string;
  /** Whether the bucket is in the path instead of the host name. */
  readonly pathStyle: boolean;
  readonly accessKeyId: string;
}

/** A folder of an SFTP server. */
export interface FolderTarget {
  readonly kind: 'sftp';
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly folder: string;
  /** SHA-256 of the server's key, `SHA256:` and base64, as `ssh-keygen -l` prints it. No other key is accepted. */
  readonly hostKey: string;
}

export type Target = BucketTarget | FolderTarget;

export interface Destination {
  /** `de_` and 16 hex digits. */
  readonly idDestination: string;
  readonly idAccount: number;
  readonly name: string;
  readonly createdMs: number;
  readonly target: Target;
  /** Secret access key, password, or private key. */
  readonly sealedSecret: string;
}

export interface DestinationPaths {
  readonly destinations: string;
  readonly keys: string;
}

export const maxDestinations = 20;

const isBucketTarget = shapeOf<BucketTarget>({
  kind: oneOf(['s3']),
  endpoint: (url) => typeof url === 'string' && URL.canParse(url),
  region: isText,
  bucket: isText,
  prefix: matching(/^$|\/$/),
  pathStyle: isFlag,
  accessKeyId: isText,
});
const isFolderTarget = shapeOf<FolderTarget>({
  kind: oneOf(['sftp']),
  host: isText,
  port: isId,
  user: isText,
  folder: isText,
  hostKey: matching(/^SHA256:[A-Za-z0-9+/]{43}$/),
});

const kind: RecordKind<Destination> = {
  isValid: shapeOf<Destination>({
    idDestination: isText,
    idAccount: isCount,
    name: isText,
    createdMs: isCount,
    target: (target) => isBucketTarget(target) || isFolderTarget(target),
    sealedSecret: isText,
  }),
  idOf: ({ idAccount, idDestination }) => `${idAccount}/${idDestination}`,
  idForm: /^\d+\/de_[0-9a-f]{16}$/,
  damaged: { code: 'record_damaged', hint: 'Remove it, and add the destination again.' },
};

const openDestinations = ({ destinations }: DestinationPaths): MarkedRecords<Destination> =>
  openMarkedRecords(destinations, kind);

const getKey = ({ keys }: DestinationPaths): Promise<Buffer> =>
  ensureKey(
    openKeys(keys, {
      code: 'record_damaged',
      what: 'a key',
      hint: 'Restore it from a backup, or remove it and add the destinations again.',
    }),
    'destinations',
  );

/**
 * Adds a destination, durably; its secret cannot be read again. Errors: `conflict` if the account has the maximum,
 * damaged ones included; `locked`.
 */
export async function addDestination(
  paths: DestinationPaths,
  added: Pick<Destination, 'idAccount' | 'name' | 'target' | 'createdMs'>,
  secret: string,
): Promise<Destination> {
  const records = openDestinations(paths);
  const { idAccount } = added;
  return await records.store.hold(String(idAccount), async () => {
    if ((await records.ids(`${idAccount}/`)).length >= maxDestinations)
      throw new AppError('conflict', `account ${idAccount} has ${maxDestinations} destinations already`, {
        hint: 'Remove one first.',
      });
    const idDestination = `de_${randomBytes(8).toString('hex')}`;
    const sealedSecret = encryptText(await getKey(paths), secret, idDestination);
    const destination: Destination = { idDestination, ...added, sealedSecret };
    await records.create(`${idAccount}/${idDestination}`, destination);
    return destination;
  });
}

export async function findDestination(
  paths: DestinationPaths,
  idAccount: number,
  idDestination: string,
): Promise<Destination | undefined> {
  return await openDestinations(paths).get(`${idAccount}/${idDestination}`);
}

/** Lists the destinations of an account, oldest first, and the ids of damaged ones. */
export async function listDestinations(
  paths: DestinationPaths,
  idAccount: number,
): Promise<{ readonly known: readonly Destination[]; readonly damaged: readonly string[] }> {
  const { known, damaged } = await openDestinations(paths).list(`${idAccount}/`);
  return {
    known: known.toSorted((a, b) => a.createdMs - b.createdMs || (a.idDestination < b.idDestination ? -1 : 1)),
    damaged: damaged.map((id) => id.slice(id.indexOf('/') + 1)),
  };
}

/** Removes a destination, durably, damaged or not; returns whether there was one. Error: `locked`. */
export async function removeDestination(
  paths: DestinationPaths,
  idAccount: number,
  idDestination: string,
): Promise<boolean> {
  return await openDestinations(paths).remove(`${idAccount}/${idDestination}`);
}

/** Replaces the secret, durably; deliveries use it from their next attempt on. Returns undefined without it. */
export async function setDestinationSecret(
  paths: DestinationPaths,
  idAccount: number,
  idDestination: string,
  secret: string,
): Promise<Destination | undefined> {
  const sealedSecret = encryptText(await getKey(paths), secret, idDestination);
  return await openDestinations(paths).change(
    `${idAccount}/${idDestination}`,
    (before) => before && { ...before, sealedSecret },
  );
}

/** Decrypts the secret of a destination. Error: `record_damaged` if its key is another one. */
export async function decryptDestinationSecret(
  paths: DestinationPaths,
  { idDestination, sealedSecret }: Destination,
): Promise<string> {
  const key = await getKey(paths);
  try {
    return decryptText(key, sealedSecret, idDestination);
  } catch (error) {
    throw new AppError('record_damaged', `the secret of destination ${idDestination} cannot be decrypted`, {
      cause: error,
      hint: 'Restore the destinations and keys/destinations.key from the same backup, or set the secret again.',
    });
  }
}
