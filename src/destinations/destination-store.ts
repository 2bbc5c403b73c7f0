/**
 * Destinations: buckets and folders of accounts to which exports are delivered.
 *
 * Layout: `destinations/<account>/<id>.json`, one record each; the secret is encrypted under `keys/destinations.key`.
 * Ids are random and never repeat.
 * Invariant: a damaged record affects no other destination.
 * Crash: a record is the previous or the new one.
 */
import { createSealing, openAccountRecords } from '../runtime/store/account-records.ts';
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

const isDestination = shapeOf<Destination>({
  idDestination: isText,
  idAccount: isCount,
  name: isText,
  createdMs: isCount,
  target: (target) => isBucketTarget(target) || isFolderTarget(target),
  sealedSecret: isText,
});

/** Opens the destinations of all accounts. */
export const openDestinations = ({ destinations }: Pick<DestinationPaths, 'destinations'>) =>
  openAccountRecords(destinations, {
    noun: 'destination',
    prefix: 'de',
    idOf: ({ idDestination }) => idDestination,
    isValid: isDestination,
    most: maxDestinations,
    damaged: { code: 'record_damaged', hint: 'Remove it, and add the destination again.' },
  });

const sealingOf = ({ keys }: DestinationPaths) => createSealing(keys, 'destination', 'set the secret again');

/**
 * Adds a destination, durably; its secret cannot be read again. Errors: `conflict` if the account has the maximum,
 * damaged ones included; `locked`.
 */
export async function addDestination(
  paths: DestinationPaths,
  added: Pick<Destination, 'idAccount' | 'name' | 'target' | 'createdMs'>,
  secret: string,
): Promise<Destination> {
  return await openDestinations(paths).add(added.idAccount, async (idDestination) => ({
    idDestination,
    ...added,
    sealedSecret: await sealingOf(paths).seal(secret, idDestination),
  }));
}

/** Replaces the secret, durably; deliveries use it from their next attempt on. Returns undefined without it. */
export async function setDestinationSecret(
  paths: DestinationPaths,
  idAccount: number,
  idDestination: string,
  secret: string,
): Promise<Destination | undefined> {
  const sealedSecret = await sealingOf(paths).seal(secret, idDestination);
  return await openDestinations(paths).change(idAccount, idDestination, (before) => ({ ...before, sealedSecret }));
}

/** Decrypts the secret of a destination. Error: `record_damaged` if its key is another one. */
export async function decryptDestinationSecret(
  paths: DestinationPaths,
  { idDestination, sealedSecret }: Destination,
): Promise<string> {
  return await sealingOf(paths).open(sealedSecret, idDestination);
}
