"""VirtMan in Horizon: a boot source of Launch Instance, and panels of images, trees and hosts."""
