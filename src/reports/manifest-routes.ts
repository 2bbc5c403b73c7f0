import type { KeyObject } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { publicKeyHex } from '../runtime/ed25519.ts';

/** Adds the public half of the key that signs manifests: `GET /manifest-key.json`, for everybody. */
export function addManifestRoutes(app: FastifyInstance, privateKey: KeyObject): void {
  const answer = { code: 200, message: 'Ok', data: { algorithm: 'Ed25519', key: publicKeyHex(privateKey) } };
  app.get('/manifest-key.json', () => answer);
}
