import {
  addDestination,
  openDestinations,
  maxDestinations,
  setDestinationSecret,
  type Destination,
  type DestinationPaths,
} from '../../destinations/destination-store.ts';
import { describeTarget, parseTarget } from '../../destinations/target.ts';
import type { Clock } from '../../runtime/clock.ts';
import { isAppError } from '../../runtime/errors.ts';
import type { EgressPolicy } from '../../runtime/http/egress-policy.ts';
import { badRequest, lacksPermission, notFound } from './envelope.ts';
import { single, type AddMethod } from './methods-routes.ts';

interface DestinationRouteDependencies {
  readonly paths: DestinationPaths;
  readonly rules: EgressPolicy;
  readonly clock: Clock;
}

const maxSecretLength = 10_000;

/** Renders a destination without its secret. */
export function describeDestination(destination: Destination): Readonly<Record<string, unknown>> {
  const { idDestination, name, createdMs, target } = destination;
  const timestampCreated = String(Math.floor(createdMs / 1000));
  return { idDestination, name, place: describeTarget(target), ...target, timestampCreated };
}

/** Reports whether a text may be a secret: of a key, a password, or a private key. */
export const isSecret = (text: string | undefined): text is string =>
  text !== undefined && text !== '' && text.length <= maxSecretLength;

/** Parses the name of a destination; undefined if it is invalid. */
export function parseDestinationName(text: string | undefined): string | undefined {
  const name = text?.trim() ?? '';
  return name !== '' && name.length <= 100 && !/\p{Cc}/u.test(name) ? name : undefined;
}

/** Adds the methods of users on the destinations of their account. Secrets are never returned. */
export function addDestinationRoutes(
  addMethod: AddMethod,
  { paths, rules, clock }: DestinationRouteDependencies,
): void {
  const missing = notFound('The destination is not found');
  const badSecret = badRequest(`Argument secret is expected: at most ${maxSecretLength} characters`);

  addMethod(['POST'], '/api/destination/v1/create.json', 'destination_create', async (user, given) => {
    if (!user.canExport) return lacksPermission;
    const name = parseDestinationName(single(given, 'name'));
    if (name === undefined) return badRequest('Argument name is expected: 1 to 100 characters without line breaks');
    const target = parseTarget(single(given, 'kind'), (argument) => single(given, argument), rules);
    if (typeof target === 'string') return badRequest(target);
    const secret = single(given, 'secret');
    if (!isSecret(secret)) return badSecret;
    try {
      const added = { idAccount: user.idAccount, name, target, createdMs: clock.nowMs() };
      return { data: describeDestination(await addDestination(paths, added, secret)) };
    } catch (error) {
      if (isAppError(error, 'conflict')) return badRequest(`The account already has ${maxDestinations} destinations`);
      throw error;
    }
  });

  addMethod(['GET'], '/api/destination/v1/list.json', 'destination_list', async ({ idAccount }) => {
    const { known, damaged } = await openDestinations(paths).list(idAccount);
    return {
      data: { destinations: known.map(describeDestination), ...(damaged.length === 0 ? {} : { damaged }) },
    };
  });

  addMethod(['POST'], '/api/destination/v1/secret.json', 'destination_secret', async (user, given) => {
    if (!user.canExport) return lacksPermission;
    const secret = single(given, 'secret');
    if (!isSecret(secret)) return badSecret;
    const idDestination = single(given, 'idDestination') ?? '';
    if (!/^de_[0-9a-f]{16}$/.test(idDestination)) return missing;
    const changed = await setDestinationSecret(paths, user.idAccount, idDestination, secret);
    return changed === undefined ? missing : { data: describeDestination(changed) };
  });

  addMethod(['POST'], '/api/destination/v1/delete.json', 'destination_delete', async (user, given) => {
    if (!user.canExport) return lacksPermission;
    const idDestination = single(given, 'idDestination') ?? '';
    return (await openDestinations(paths).remove(user.idAccount, idDestination))
      ? { data: { idDestination } }
      : missing;
  });
}
