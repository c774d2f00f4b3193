"""What is on this machine: discovery of backends, devices and their facts.
SPDX-License-Identifier: Apache-2.0
"""
