import { createHash } from 'node:crypto';
import type { AccessReader, User } from '../../access/access.ts';
import { defaultFormat, getFormat, isFileFormat } from '../../datasets/file-formats.ts';
import type { LinkHolders } from '../../reports/download-routes.ts';
import type { ReportDelivery } from '../../reports/report-records.ts';
import { manifestName } from '../../reports/manifest.ts';
import {
  archiveName,
  describeSlot,
  fileStem,
  isInProgress,
  sumFiles,
  type ReportVersion,
  type ReportJob,
} from '../../reports/reports.ts';
import { defined } from '../../runtime/files/checksummed-json.ts';
import { type LinkHolder, signLink, type SigningKeys } from '../../reports/signed-links.ts';

export type ExportViews = ReturnType<typeof createExportViews>;

const seconds = (ms: number): string => String(Math.floor(ms / 1000));

function reportStatus(job: ReportJob): string {
  if (isInProgress(job)) return 'In progress';
  return job.state === 'success' ? 'Success!' : 'Error occurred';
}

function rawStatus(job: ReportJob): string {
  if (job.state === 'user_failed') return 'User error occurred';
  return job.state === 'canceled' ? 'Canceled by user' : reportStatus(job);
}

export function viewReportVersion(basis: ReportVersion): Record<string, unknown> {
  const { version, nextSinceVersion, keptUntilSeconds, watermarkMs } = basis;
  return {
    version: String(version),
    nextSinceVersion,
    timestampKeptUntil: String(keptUntilSeconds),
    ...(watermarkMs === undefined ? {} : { timestampWatermark: seconds(watermarkMs) }),
  };
}

/** Renders the delivery of an export's files; nothing without a destination. */
function viewDelivery({ deliverTo, files: all }: ReportJob, delivery: ReportDelivery | undefined) {
  if (deliverTo === undefined) return {};
  const none: ReportDelivery = { state: 'waiting', attempts: 0, nextMs: 0, files: 0 };
  const { state, attempts, nextMs, atMs, lastError, files } = delivery ?? none;
  const status = { waiting: 'Waiting', delivered: 'Delivered', failed: 'Failed' }[state];
  return {
    delivery: {
      idDestination: deliverTo,
      status,
      files,
      ...defined({ filesInTotal: all?.length, error: lastError }),
      attempts,
      ...(atMs === undefined ? {} : { timestampDelivered: seconds(atMs) }),
      ...(state === 'waiting' && nextMs > 0 ? { timestampNextAttempt: seconds(nextMs) } : {}),
    },
  };
}

/** Creates the renderers. Links are signed for each response; their expiry is fixed when the request ends. */
export function createExportViews(
  keys: SigningKeys,
  progress: (job: ReportJob) => Promise<number>,
  readDelivery: (id: number) => Promise<ReportDelivery | undefined>,
) {
  async function result(job: ReportJob, user: User, baseUrl: string): Promise<Record<string, unknown>> {
    if (isInProgress(job)) return { progress: `${await progress(job)}%` };
    if (job.state !== 'success') return {};
    const expiresSeconds = job.expiresSeconds ?? 0;
    const { format = defaultFormat } = job.request as { readonly format?: string };
    const holder = holderOf(user);
    const link = (name: string) => ({
      link: `${baseUrl}${signLink(keys, { id: job.id, name, expiresSeconds, holder })}`,
      timestampExpires: String(expiresSeconds),
    });
    return {
      files: (job.files ?? []).map(({ name, rows, bytes, sha256 }) => ({ ...link(name), rows, bytes, sha256 })),
      format,
      // Another version may have further formats.
      hasHeader: isFileFormat(format) && getFormat(format).hasHeader,
      archive: link(archiveName(job)),
      ...(job.basis === undefined
        ? {}
        : { manifest: link(manifestName(fileStem(job))), ...viewReportVersion(job.basis) }),
    };
  }

  return {
    /** Renders the report area's view (docs/api.md#export): three states, with links of the user. */
    report: async (job: ReportJob, user: User, baseUrl: string) => ({
      idReportFile: String(job.id),
      status: reportStatus(job),
      ...(await result(job, user, baseUrl)),
    }),
    /** Renders the raw-export area's view (clients.md): five states, with links of the user. */
    raw: async (job: ReportJob, user: User, baseUrl: string) => ({
      idRawExport: String(job.id),
      idReportFile: String(job.id),
      ...defined({ name: job.name }),
      status: rawStatus(job),
      ...describeSlot(job),
      ...(isInProgress(job) ? { isCancellable: true } : {}),
      ...(job.state === 'user_failed' ? { errorMessage: job.error ?? '' } : {}),
      ...viewDelivery(job, job.deliverTo === undefined ? undefined : await readDelivery(job.id)),
      ...(await result(job, user, baseUrl)),
    }),
    summary: async (job: ReportJob) => ({
      idReportFile: String(job.id),
      idRawExport: String(job.id),
      event: job.event,
      ...defined({ name: job.name }),
      status: rawStatus(job),
      ...describeSlot(job),
      timestampCreated: seconds(job.createdMs),
      ...(isInProgress(job) ? { progress: `${await progress(job)}%` } : {}),
      ...(job.state === 'user_failed' ? { errorMessage: job.error ?? '' } : {}),
      ...(job.expiresSeconds === undefined ? {} : { timestampExpires: String(job.expiresSeconds) }),
      ...(job.files === undefined ? {} : sumFiles(job.files)),
    }),
  };
}

/** Returns the holder of a user's links. A new secret changes the mark, which revokes the links. */
function holderOf({ idUser, secret }: User): LinkHolder {
  return { idUser, secretFingerprint: createHash('sha256').update(`links of ${idUser}\n${secret}`).digest('hex') };
}

export function createLinkHolders(access: AccessReader): LinkHolders {
  return {
    findSecretFingerprint(idUser) {
      const user = access.current().findUser(idUser);
      return user === undefined ? undefined : holderOf(user).secretFingerprint;
    },
    mayLackUsers: () => access.mayMissUsers(),
    onChange: (listener) => access.onChange(listener),
  };
}
