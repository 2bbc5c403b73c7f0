import { setPassword } from '../access/passwords.ts';
import { openSessionEnds, openSessionKey } from '../access/session-key.ts';
import { createRememberedBrowsers, createSessions, maxSessionSeconds } from '../access/sessions.ts';
import type { AccessReader } from '../access/access.ts';
import type { AccessPaths } from '../access/access-file.ts';
import { addUser, listUsers } from '../access/users.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { dataPaths, type Config } from '../config.ts';
import { createOidcClient, type OidcSettings } from '../console/oidc-client.ts';
import { addOidcRoutes } from '../console/oidc-routes.ts';
import { addPageRoutes, openPageFiles } from '../console/page-routes.ts';
import { addSessionRoutes } from '../console/session-routes.ts';
import { createSignInGuard } from '../console/sign-in-guard.ts';
import type { ApiServer } from '../export/api/server.ts';
import { describeExportForm } from '../export/api/export-form-metadata.ts';
import { defaultTimezone } from '../export/api/parse-request.ts';
import { findBuild } from '../runtime/files/package-files.ts';
import type { CompositionContext } from './context.ts';

/** Returns the settings of OpenID Connect; undefined without a provider. */
function findOidcSettings(config: Config): OidcSettings | undefined {
  const { oidcIssuer: issuer, oidcClientId: clientId, oidcClientSecret: clientSecret, publicApiUrl } = config;
  if (issuer === undefined || clientId === undefined || publicApiUrl === undefined) return undefined;
  const { oidcClaim: claim, oidcNewUsersAccount } = config;
  const newUsersAccount = oidcNewUsersAccount === 0 ? undefined : oidcNewUsersAccount;
  return {
    issuer,
    clientId,
    clientSecret,
    claim,
    newUsersAccount,
    callbackUrl: `${publicApiUrl}/console/oidc/callback`,
  };
}

/** Adds a user, or finds the one that was added at the same moment. */
async function ensureUser(paths: AccessPaths, name: string, idAccount: number): Promise<string> {
  try {
    return (await addUser(paths, { name, idAccount, canExport: true })).idUser;
  } catch (error) {
    const found = (await listUsers(paths)).find((user) => user.name === name && user.idAccount === String(idAccount));
    if (found === undefined) throw error;
    return found.idUser;
  }
}

export async function openConsole(
  compositionContext: CompositionContext,
  access: AccessReader,
  audit: Pick<AuditLog, 'record'>,
) {
  const { config, logger, clock, closers } = compositionContext;
  const { publicApiUrl: publicUrl, dataDir, quotaIp } = config;
  // Operators behind a proxy turn the quota of addresses off.
  const hasClientAddresses = quotaIp.length > 0;
  const { version } = findBuild();
  const key = await openSessionKey(dataPaths(dataDir).keys, logger);
  closers.add('session key', () => key.close());
  const nowSeconds = (): number => Math.floor(clock.nowMs() / 1000);
  const ends = await openSessionEnds(dataPaths(dataDir).keys, logger, {
    nowSeconds,
    longestSeconds: maxSessionSeconds,
  });
  closers.add('session ends', () => ends.close());
  const browsers = createRememberedBrowsers(key);
  const guard = createSignInGuard(compositionContext, hasClientAddresses);
  const store = async (idUser: string, password: string) =>
    (await setPassword(dataPaths(dataDir), Number(idUser), password)).passwordHash;
  const isReady = (): boolean => key.isReadable();
  const sessions = createSessions({ key, access, clock, ends }, publicUrl?.startsWith('https:') === true);
  const oidc = findOidcSettings(config);
  const ofOidc = (settings: OidcSettings) => ({
    access,
    sessions,
    browsers,
    audit,
    logger,
    isReady,
    key: () => key.current(),
    client: createOidcClient(settings),
    addUser: (name: string, idAccount: number) => ensureUser(dataPaths(dataDir), name, idAccount),
  });
  return {
    sessions,
    problems: () => key.problems(),
    addRoutes: (server: ApiServer): void => {
      const options = { publicUrl, version, timezone: defaultTimezone, hasClientAddresses };
      addSessionRoutes(server, { access, sessions, browsers, guard, audit, setPassword: store, isReady }, options);
      const importAddress = { importUrl: config.publicS2sUrl, importPort: config.s2sPort };
      const describeForm = () => ({ ...describeExportForm(), ...importAddress });
      addPageRoutes(server, openPageFiles(), describeForm, { oidc: oidc !== undefined });
      if (oidc === undefined) return;
      const { claim, newUsersAccount } = oidc;
      const isSecure = publicUrl?.startsWith('https:') === true;
      addOidcRoutes(server, ofOidc(oidc), { claim, newUsersAccount, isSecure, hasClientAddresses });
    },
  };
}
