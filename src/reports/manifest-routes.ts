import type { FastifyInstance } from 'fastify';
import { publicKeyHex } from '../runtime/ed25519.ts';
import type { ManifestKey } from './manifest-key.ts';

/** Adds the public half of the key that signs manifests: `GET /manifest-key.json`, for everybody. */
export function addManifestRoutes(app: FastifyInstance, manifestKey: ManifestKey): void {
  app.get('/manifest-key.json', () => {
    const key = manifestKey.current();
    // The server answers an error with 500 and Retry-After.
    if (key === undefined) throw new Error('the key of manifests cannot be read');
    return { code: 200, message: 'Ok', data: { algorithm: 'Ed25519', key: publicKeyHex(key) } };
  });
}
