import path from 'node:path';
import { defined } from '../runtime/files/checksummed-json.ts';
import { createExportArea, type ExportAccess, type ExportArea } from '../client/export-area.ts';
import { createHttpClient, type HttpClient } from '../client/http-client.ts';
import type { ImportAccess } from '../client/import-area.ts';
import { chooseProfile, parseServiceUrl, profilesPath, readProfiles, type Profile } from '../client/profiles.ts';
import { dataPaths, findSecret } from '../config.ts';
import { AppError } from '../runtime/errors.ts';
import { exists } from '../runtime/files/file-checks.ts';
import type { CommandContext, OptionValues } from './command.ts';
import { parsePositive, text } from './option-specs.ts';

export const callerOptions = {
  url: text('URL of the service (TRIBUTARY_IMPORT_URL, TRIBUTARY_EXPORT_URL, or the profile)', 'URL'),
  profile: text(
    "profile with URLs and secrets (TRIBUTARY_PROFILE, the profile of ./data, or 'tributary profile use')",
    'NAME',
  ),
};

type ServiceOptions = Partial<OptionValues<typeof callerOptions>>;

function profileOf({ environment }: CommandContext): Profile {
  const read = (name: string): string | undefined => environment[`TRIBUTARY_${name}`] || undefined;
  const app = read('APP');
  return defined({
    importUrl: read('IMPORT_URL'),
    exportUrl: read('EXPORT_URL'),
    idApp: app === undefined ? undefined : parsePositive(app, 'TRIBUTARY_APP'),
    token: findSecret(environment, 'TRIBUTARY_TOKEN'),
    idUser: read('USER'),
    secret: findSecret(environment, 'TRIBUTARY_SECRET'),
  });
}

/**
 * Merges options over the environment over the profile. Rejects a current profile of another data folder: events
 * would reach the service of another checkout. Errors: `not_found` for a profile, `config_invalid`, `usage`.
 */
async function resolve({ profile }: ServiceOptions, context: CommandContext, options: Profile): Promise<Profile> {
  const { environment } = context;
  const name = profile ?? (environment['TRIBUTARY_PROFILE'] || undefined);
  const dataDir = path.resolve(environment['TRIBUTARY_DATA_DIR'] || 'data');
  const chosen = chooseProfile(await readProfiles(profilesPath(environment)), name, dataDir);
  const settings = { ...profileOf(context), ...options };
  const isOther = name === undefined && chosen.dataDir !== undefined && chosen.dataDir !== dataDir;
  const isByAddress = (settings.importUrl ?? settings.exportUrl) !== undefined;
  if (isOther && !isByAddress && (await exists(dataPaths(dataDir).access)))
    throw new AppError('usage', `the current profile belongs to the data folder ${chosen.dataDir}, not to ${dataDir}`, {
      hint: "Run 'tributary init' to create a profile of this folder, or pass --profile or --url.",
    });
  return { ...chosen, ...settings };
}

function missing(what: string, way: string): AppError {
  return new AppError('usage', `${what} is not set`, {
    hint: `Set ${way}, or create a profile with 'tributary profile add' or 'tributary init'.`,
  });
}

/** Resolves the URL, app and token of an import. Errors: `usage` for a missing value; those of profiles. */
export async function resolveImport(
  serviceOptions: ServiceOptions & { readonly app?: number | undefined },
  context: CommandContext,
): Promise<ImportAccess> {
  const options = defined({ importUrl: serviceOptions.url, idApp: serviceOptions.app });
  const { importUrl, idApp, token } = await resolve(serviceOptions, context, options);
  if (importUrl === undefined) throw missing('the URL of the import area', '--url or TRIBUTARY_IMPORT_URL');
  if (idApp === undefined) throw missing('the app', '--app or TRIBUTARY_APP');
  if (token === undefined) throw missing(`the token of app ${idApp}`, 'TRIBUTARY_TOKEN');
  return { url: parseServiceUrl(importUrl, 'the URL of the import area'), idApp, token };
}

/** Resolves the URL, user and secret of an export. Errors as `resolveImport`. */
export async function resolveExport(
  serviceOptions: ServiceOptions & { readonly user?: number | undefined },
  context: CommandContext,
): Promise<ExportAccess> {
  const options = defined({ exportUrl: serviceOptions.url, idUser: serviceOptions.user?.toString() });
  const { exportUrl, idUser, secret } = await resolve(serviceOptions, context, options);
  if (exportUrl === undefined) throw missing('the URL of the export area', '--url or TRIBUTARY_EXPORT_URL');
  if (idUser === undefined) throw missing('the user', '--user or TRIBUTARY_USER');
  if (secret === undefined) throw missing(`the secret of user ${idUser}`, 'TRIBUTARY_SECRET');
  return { url: parseServiceUrl(exportUrl, 'the URL of the export area'), idUser, secret };
}

const reportIntervalMs = 30_000;

/** Creates a reporter of waits: immediate on a terminal, else one line per 30 s. */
export function createWaitReporter({ printMessage, printProgress }: CommandContext): (why: string | undefined) => void {
  let notedAt = Number.NEGATIVE_INFINITY;
  return (why) => {
    if (why === undefined) return;
    printProgress?.(`waiting: ${why}`);
    if (performance.now() - notedAt < reportIntervalMs) return;
    notedAt = performance.now();
    printMessage(`tributary: waiting: ${why}`);
  };
}

export interface ExportCommandClient {
  readonly url: string;
  readonly http: HttpClient;
  readonly area: ExportArea;
  readonly onWait: (why: string | undefined) => void;
}

/** Runs work with the export area of a user, and closes the connections. */
export async function withExportClient<T>(
  serviceOptions: ServiceOptions & { readonly user?: number | undefined },
  context: CommandContext,
  run: (caller: ExportCommandClient) => Promise<T>,
): Promise<T> {
  const access = await resolveExport(serviceOptions, context);
  const http = createHttpClient();
  const onWait = createWaitReporter(context);
  try {
    const area = createExportArea(http, access, { signal: context.stop, onWait });
    return await run({ url: access.url, http, area, onWait });
  } finally {
    http.close();
  }
}
